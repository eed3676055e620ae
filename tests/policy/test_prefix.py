import dataclasses

import numpy as np
import pytest
import torch

from components.matrix.features import FEATURE_NAMES, structure_features
from components.matrix.types import SparseMatrix
from components.policy.prefix import PrefixEncoder, collate, embed_coordinates, sample_coordinates, view
from tests.policy.micro import matrix, policy_settings, random_view


def empty_matrix(rows=3, cols=4):
    return SparseMatrix("e", "g", rows, cols, np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(0))


def banded(n, offsets=(-1, 0, 1)):
    rows = [[r + o for o in offsets if 0 <= r + o < n] for r in range(n)]
    pointer = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    columns = np.array([c for row in rows for c in row], np.int32)
    return SparseMatrix("b", "g", n, n, pointer, columns, np.ones(len(columns)))


def test_every_sample_is_an_entry_and_every_stratum_gives_one():
    m = matrix("uniform", 3000, 1)
    points = sample_coordinates(m, 64, seed=3)
    entries = {(r, int(c)) for r in range(m.rows) for c in m.col_idx[m.row_ptr[r] : m.row_ptr[r + 1]]}
    assert points.shape == (64, 2)
    assert all((int(r), int(c)) in entries for r, c in points)
    order = [m.row_ptr[r] + np.searchsorted(m.col_idx[m.row_ptr[r] : m.row_ptr[r + 1]], c) for r, c in points]
    assert all(i * m.nnz // 64 <= o <= (i + 1) * m.nnz // 64 for i, o in enumerate(order))


def test_sampling_is_seeded_and_skips_empty_rows():
    m = SparseMatrix("x", "g", 5, 5, np.array([0, 0, 2, 2, 2, 3]), np.array([0, 4, 2], np.int32), np.ones(3))
    assert sample_coordinates(m, 3, 0).tolist() == [[1, 0], [1, 4], [4, 2]]
    big = matrix("rmat", 3000, 2)
    assert np.array_equal(sample_coordinates(big, 32, 5), sample_coordinates(big, 32, 5))
    assert not np.array_equal(sample_coordinates(big, 32, 5), sample_coordinates(big, 32, 6))


def test_the_same_pattern_at_another_size_looks_the_same():
    settings = policy_settings(coordinates=64).prefix
    small, large = (view(banded(n), np.zeros(2, np.float32), settings).relative for n in (1000, 100_000))
    assert np.abs(small - large).max() < 2e-3


def test_sinusoidal_features_are_those_of_the_formula():
    batch = collate([random_view(0)])
    got = embed_coordinates(batch, "sinusoidal", 4)[0, 3].numpy()
    row, col = batch.relative[0, 3].numpy().astype(np.float64)
    angles = [x * 10_000 / 10_000 ** (k / 4) for x in (row, col) for k in range(4)]
    assert got.shape == (16,)
    np.testing.assert_allclose(got, [*np.sin(angles), *np.cos(angles)], atol=2e-3)  # float32 angles up to 1e4


def test_maxmin_spans_the_sample_and_raw_is_the_index():
    batch = collate([random_view(1), random_view(2)])
    scaled = embed_coordinates(batch, "maxmin", 4)
    assert scaled.amin(1).tolist() == [[0, 0], [0, 0]]
    assert scaled.amax(1).tolist() == [[1, 1], [1, 1]]
    assert torch.equal(embed_coordinates(batch, "raw", 4), batch.raw)


@pytest.mark.parametrize("embedding", ["sinusoidal", "maxmin", "raw"])
def test_the_pooled_prefix_does_not_depend_on_the_order_of_the_sample(embedding):
    torch.manual_seed(0)
    encoder = PrefixEncoder(32, 5, policy_settings(embedding=embedding).prefix)
    one = random_view(3)
    order = np.random.default_rng(0).permutation(16)
    other = dataclasses.replace(one, relative=one.relative[order], raw=one.raw[order])
    first, second = encoder(collate([one])), encoder(collate([other]))
    assert first.shape == (1, 3, 32)
    torch.testing.assert_close(first, second, atol=1e-5, rtol=0)
    assert not torch.allclose(first, encoder(collate([random_view(4)])), atol=1e-3)


def test_parts_switch_off():
    for coordinates, structure, tokens in ((True, True, 3), (True, False, 2), (False, True, 1), (False, False, 0)):
        settings = policy_settings(use_coordinates=coordinates, structure_token=structure).prefix
        encoder = PrefixEncoder(32, 5, settings)
        assert encoder.tokens == tokens
        assert encoder(collate([random_view(0), random_view(1)])).shape == (2, tokens, 32)


def test_structure_is_standardised_and_clamped():
    encoder = PrefixEncoder(32, 2, policy_settings(use_coordinates=False).prefix)
    encoder.standardise(np.array([[0, 1], [2, 1]], np.float32))
    assert encoder.mean.tolist() == [1, 1]
    assert encoder.deviation.tolist() == [1, pytest.approx(1e-3)]
    far = dataclasses.replace(random_view(0), structure=np.array([1e30, 1], np.float32))
    assert torch.isfinite(encoder(collate([far]))).all()


def test_a_matrix_without_entries_has_a_finite_prefix_that_is_no_other_matrix():
    m = empty_matrix()
    features = structure_features(m).vector()
    settings = policy_settings().prefix
    seen = view(m, features, settings)
    assert seen.empty
    assert features.shape == (len(FEATURE_NAMES),)
    torch.manual_seed(0)
    encoder = PrefixEncoder(32, len(FEATURE_NAMES), settings)
    full = dataclasses.replace(seen, empty=False)
    assert torch.isfinite(encoder(collate([seen]))).all()
    assert not torch.allclose(encoder(collate([seen])), encoder(collate([full])))
