"""Structure features, classes and generated families."""

from collections import Counter

import numpy as np
import pytest

from components.errors import UserError
from components.matrix.features import FEATURE_NAMES, STRUCTURE_CLASSES, structure_class, structure_features
from components.matrix.generate import FAMILIES, generate
from components.matrix.info import matrix_info
from components.matrix.storage import from_scipy
from components.matrix.types import SparseMatrix


def of(dense: object) -> SparseMatrix:
    from scipy.sparse import coo_array

    return from_scipy(coo_array(np.array(dense, float)), "M", "local", "test")


def test_features_of_a_matrix_counted_by_hand() -> None:
    # rows hold 2, 0, 3 and 1 entries
    f = structure_features(of([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 1]]))
    assert (f.rows, f.cols, f.nnz, f.density) == (4, 5, 6, 0.3)
    assert (f.row_len_mean, f.row_len_min, f.row_len_max, f.row_len_median) == (1.5, 0, 3, 1.5)
    assert f.row_len_cv == pytest.approx(np.std([2, 0, 3, 1]) / 1.5)
    assert (f.col_len_max, f.empty_rows) == (2, 1)
    # j - i: 0 1 | -2 0 1 | 1
    assert (f.bandwidth, f.distinct_diagonals, f.mean_distance) == (2, 3, pytest.approx(5 / 6))
    assert f.diagonal_fill == pytest.approx(6 / (3 * 4))
    assert f.main_diagonal == pytest.approx(2 / 4)
    assert f.run_len_mean == pytest.approx(6 / 4)  # runs: 0-1, 0, 2-3, 4
    assert f.block2_fill == pytest.approx(6 / (4 * 4))  # blocks (0,0), (1,0), (1,1), (1,2)
    assert f.block3_fill == pytest.approx(6 / (9 * 3))  # blocks (0,0), (0,1), (1,1)
    assert f.block4_fill == pytest.approx(6 / (16 * 2))
    assert f.pattern_symmetry == 0
    assert f.top_rows_share == 0.5
    assert (f.warp_fill, f.sorted_warp_fill) == (6 / 96, 6 / 96)


def test_pattern_symmetry() -> None:
    assert structure_features(of([[1, 2, 0], [3, 0, 4], [0, 0, 5]])).pattern_symmetry == pytest.approx(2 / 3)
    assert structure_features(of(np.eye(3))).pattern_symmetry == 1


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (4, 4), (1, 1), (1, 70000), (70000, 1)])
def test_features_are_finite_without_entries(shape: tuple[int, int]) -> None:
    from scipy.sparse import coo_array

    f = structure_features(from_scipy(coo_array(shape), "M", "local", "test"))
    assert np.isfinite(f.vector()).all()
    assert structure_class(f) == "tiny"


def test_vector_is_named_bounded_and_float32() -> None:
    for family in FAMILIES:
        vector = structure_features(generate(family, 5000, 1)).vector()
        assert vector.dtype == np.float32
        assert vector.shape == (len(FEATURE_NAMES),)
        assert np.abs(vector).max() <= 1.5


EXPECTED = {
    "diagonal": "diagonal",
    "banded": "banded",
    "stencil2d": "stencil",
    "stencil3d": "stencil",
    "fem-block": "block",
    "uniform": "uniform",
    "short-rows": "other",
    "long-rows": "uniform",
    "rmat": "power-law",
    "dense-rows": "dense-rows",
    "arrow": "dense-rows",
    "hypersparse": "hypersparse",
    "lp": "rectangular",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_family_has_its_class_and_size(family: str) -> None:
    classes: Counter[str] = Counter()
    for seed in range(6):
        matrix = generate(family, 12_000, seed)
        assert 0.6 * 12_000 <= matrix.nnz <= 1.4 * 12_000
        assert matrix.to_scipy().has_canonical_format
        assert np.isfinite(matrix.values).all()
        assert (matrix.values != 0).all()
        classes[structure_class(matrix)] += 1
    assert classes[EXPECTED[family]] == 6


def test_every_class_but_the_smallest_is_generated() -> None:
    assert set(EXPECTED.values()) == set(STRUCTURE_CLASSES) - {"tiny"}


def test_generation_is_seeded() -> None:
    a, b, c = generate("rmat", 3000, 1), generate("rmat", 3000, 1), generate("rmat", 3000, 2)
    np.testing.assert_array_equal(a.col_idx, b.col_idx)
    np.testing.assert_array_equal(a.values, b.values)
    assert a.nnz != c.nnz or not np.array_equal(a.col_idx, c.col_idx)


def test_laplacian_values() -> None:
    dense = generate("stencil2d", 1000, 0).to_scipy().toarray()
    np.testing.assert_allclose(dense, dense.T)
    inner = np.diff(generate("stencil2d", 1000, 0).row_ptr) == 5
    np.testing.assert_allclose(dense.sum(axis=1)[inner], 0, atol=1e-12)


def test_a_million_nonzeros_in_seconds() -> None:
    matrix = generate("uniform", 1_000_000, 0)
    assert 0.9e6 < matrix.nnz < 1.1e6


def test_refuses_what_it_does_not_know() -> None:
    with pytest.raises(UserError, match="unknown family, expected one of diagonal"):
        generate("spiral", 1000, 0)
    with pytest.raises(UserError, match="expected 1000 to"):
        generate("arrow", 10, 0)


def test_info_is_plain_json() -> None:
    import json

    info = matrix_info(generate("lp", 2000, 0))
    again = json.loads(json.dumps(info, allow_nan=False))
    assert list(again)[:4] == ["name", "group", "rows", "cols"]
    assert again["structure_class"] == "rectangular"
    assert again["nnz"] == again["nnz_stored"]
