import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.kernel.formats import FORMATS, convert, fill_values, format_spec
from components.kernel.types import FormatNotApplicable
from components.matrix.types import SparseMatrix


def _matrix(dense: np.ndarray) -> SparseMatrix:
    rows, cols = dense.shape
    present = dense != 0
    row_ptr = np.concatenate([[0], np.cumsum(present.sum(1))]).astype(np.int64)
    return SparseMatrix(
        "m", "test", rows, cols, row_ptr, np.nonzero(present)[1].astype(np.int32), dense[present].astype(float)
    )


def _dense(stored) -> np.ndarray:
    """What a kernel of the format's documentation would compute, entry by entry."""
    a, s = stored.arrays, stored.scalars
    out = np.zeros((s["rows"], s["cols"]), np.float32)
    match stored.format.name:
        case "csr":
            for r in range(s["rows"]):
                for j in range(a["row_ptr"][r], a["row_ptr"][r + 1]):
                    out[r, a["col_idx"][j]] += a["values"][j]
        case "coo":
            for j in range(s["nnz"]):
                out[a["row_idx"][j], a["col_idx"][j]] += a["values"][j]
        case "sell":
            for p, r in enumerate(a["row_perm"]):
                for j in range(a["slice_ptr"][p // s["c"]] + p % s["c"], a["slice_ptr"][p // s["c"] + 1], s["c"]):
                    if r >= 0:
                        out[r, a["col_idx"][j]] += a["values"][j]
                    else:
                        assert a["values"][j] == 0
        case "dia":
            for k, offset in enumerate(a["offsets"]):
                for r in range(s["rows"]):
                    if 0 <= r + offset < s["cols"]:
                        out[r, r + offset] += a["values"][k * s["rows"] + r]
                    else:
                        assert a["values"][k * s["rows"] + r] == 0
        case "bsr":
            b = s["b"]
            for br in range(s["block_rows"]):
                for k in range(a["block_ptr"][br], a["block_ptr"][br + 1]):
                    for i in range(b * b):
                        r, c = br * b + i // b, a["block_col"][k] * b + i % b
                        if r < s["rows"] and c < s["cols"]:
                            out[r, c] += a["values"][k * b * b + i]
                        else:
                            assert a["values"][k * b * b + i] == 0
    return out


SPECS = [
    ("csr", {}),
    ("csr", {"index": "u16"}),
    ("coo", {}),
    ("sell", {"c": "4", "sigma": "1"}),
    ("sell", {"c": "8", "sigma": "32", "index": "u16"}),
    ("dia", {}),
    ("bsr", {"b": "2"}),
    ("bsr", {"b": "3", "index": "u16"}),
    ("bsr", {"b": "8"}),
]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 13), st.integers(1, 11), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_every_format_holds_the_same_matrix(rows, cols, density, seed):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((rows, cols)) < density, rng.integers(1, 9, (rows, cols)), 0).astype(float)
    matrix = _matrix(dense)
    for name, parameters in SPECS:
        stored = convert(format_spec(name, parameters), matrix)
        np.testing.assert_array_equal(_dense(stored), dense, err_msg=str(stored.format))
        assert set(stored.arrays) == set(FORMATS[name].arrays)
        assert set(stored.scalars) == set(FORMATS[name].scalars)
        assert all(array.ndim == 1 and array.flags.c_contiguous for array in stored.arrays.values())
        redrawn = fill_values(stored, matrix.values * 3)
        np.testing.assert_array_equal(redrawn, stored.arrays["values"] * 3)


def test_wide_matrices_do_not_fit_16_bits():
    matrix = SparseMatrix("w", "t", 1, 65_537, np.array([0, 1]), np.array([65_536], np.int32), np.ones(1))
    with pytest.raises(FormatNotApplicable, match="65536; the matrix has 65537"):
        convert(format_spec("csr", {"index": "u16"}), matrix)
    assert convert(format_spec("bsr", {"b": "2", "index": "u16"}), matrix).arrays["block_col"].tolist() == [32_768]


def test_padding_is_bounded():
    n = 3000
    cols = np.random.default_rng(0).permutation(n).astype(np.int32)
    matrix = SparseMatrix("p", "t", n, n, np.arange(n + 1), cols, np.ones(n))
    with pytest.raises(FormatNotApplicable, match="at most 20 each"):
        convert(format_spec("dia", {}), matrix)


def test_sigma_sorts_only_within_its_window():
    lengths = np.array([1] * 32 + [2] * 31 + [3])
    row_ptr = np.concatenate([[0], np.cumsum(lengths)])
    cols = np.concatenate([np.arange(k) for k in lengths]).astype(np.int32)
    matrix = SparseMatrix("s", "t", 64, 4, row_ptr, cols, np.ones(len(cols)))
    stored = convert(format_spec("sell", {"c": "32", "sigma": "32"}), matrix)
    assert stored.arrays["row_perm"][:3].tolist() == [0, 1, 2]
    assert stored.arrays["row_perm"][32:35].tolist() == [63, 32, 33]
    assert stored.arrays["slice_ptr"].tolist() == [0, 32, 128]


def test_ten_million_entries_convert_in_seconds():
    n, per = 500_000, 8
    cols = ((np.arange(n)[:, None] + np.arange(per)) % n).astype(np.int32)
    cols.sort(axis=1)
    matrix = SparseMatrix("big", "t", n, n, np.arange(n + 1, dtype=np.int64) * per, cols.ravel(), np.ones(n * per))
    for name, parameters in (("csr", {}), ("coo", {}), ("sell", {"sigma": "256"}), ("bsr", {"b": "2"})):
        stored = convert(format_spec(name, parameters), matrix)
        assert stored.convert_us < 20e6, stored.format
