"""The arithmetic of checks, the adversarial set, timing statistics and rendering."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from components.errors import UserError
from components.files import sha256_text
from components.judge import options
from components.judge.adversarial import MIN_APPLICABLE, adversarial_matrices
from components.judge.memo import Memo
from components.judge.options import judge_defaults, resolve_backend
from components.judge.splitmix import coins, signed
from components.judge.verify import DRAWS, check_output, chosen_draws, draw, pattern_key
from components.kernel.formats import FORMATS, convert, format_spec
from components.kernel.operators import OPERATORS
from components.kernel.types import FormatNotApplicable
from components.settings import load

ROOT = Path(__file__).resolve().parents[2]


def by_name(name: str):
    return next(matrix for matrix in adversarial_matrices("spmv", 1) if matrix.name == name)


# -- numbers


def test_the_float32_product_is_within_the_bound_and_small_errors_are_not() -> None:
    matrix = by_name("skewed")
    numbers = draw(matrix, OPERATORS["spmv"], 1, 0)
    rows = np.repeat(np.arange(matrix.rows), np.diff(matrix.row_ptr))
    products = numbers.values * numbers.inputs["x"][matrix.col_idx]
    y = np.zeros(matrix.rows, np.float32)
    np.add.at(y, rows, products)
    assert check_output(y, numbers, 1) is None
    for row in (0, 17, matrix.rows - 1):
        off = y.copy()
        off[row] = numbers.expected[row] + 1.5 * numbers.bound[row] + 2 * np.spacing(off[row])
        found = check_output(off, numbers, 1)
        assert found is not None
        assert (found.row, found.count) == (row, 1)


def test_zeros_are_wrong_in_tiny_rows_too_and_empty_rows_must_be_zero() -> None:
    matrix = by_name("mixed")
    numbers = draw(matrix, OPERATORS["spmv"], 1, 1)
    full = np.diff(matrix.row_ptr) > 0
    assert np.abs(numbers.expected[full]).min() < 1e-5  # tiny rows exist
    assert np.abs(numbers.expected[full]).max() > 0.1
    found = check_output(np.zeros(matrix.rows, np.float32), numbers, 1)
    assert found is not None
    assert found.count == np.count_nonzero(full)
    almost = numbers.expected.astype(np.float32)
    assert check_output(almost, numbers, 1) is None
    almost[np.argmin(full)] = 1e-30
    assert check_output(almost, numbers, 1) is not None


def test_a_nan_is_wrong_and_is_named() -> None:
    matrix = by_name("dense")
    numbers = draw(matrix, OPERATORS["spmm"], 3, 0)
    output = numbers.expected.astype(np.float32)
    assert check_output(output, numbers, 3) is None
    output[7] = np.nan
    found = check_output(output, numbers, 3)
    assert found is not None
    assert found.describe(3).startswith("row 2 column 1: got nan, expected ")


def test_draws_differ_and_are_signed() -> None:
    matrix = by_name("long-row")
    values = [draw(matrix, OPERATORS["spmv"], 1, number).values for number in range(DRAWS)]
    assert all(0.3 < np.mean(array > 0) < 0.7 for array in values)
    assert all(not np.array_equal(values[0], array) for array in values[1:])
    picks = {chosen_draws(sha256_text(str(number))) for number in range(200)}
    assert all(first != second for first, second in picks)
    assert {number for pick in picks for number in pick} == set(range(DRAWS))
    few = {chosen_draws(sha256_text(str(number)), 10**8) for number in range(200)}
    assert few == {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}


def test_a_pattern_key_ignores_values_and_sees_the_pattern() -> None:
    matrix = by_name("dense")
    assert pattern_key(replace(matrix, values=matrix.values * 2)) == pattern_key(matrix)
    assert pattern_key(replace(matrix, cols=13)) != pattern_key(matrix)


# -- the adversarial set


def test_the_set_holds_what_the_design_names_and_stays_small() -> None:
    matrices = adversarial_matrices("spmv", 1)
    lengths = [np.diff(matrix.row_ptr) for matrix in matrices]
    assert any(matrix.rows == 0 for matrix in matrices)
    assert any(matrix.rows > 0 and matrix.nnz == 0 for matrix in matrices)
    assert any(matrix.rows == 1 for matrix in matrices)
    assert any(matrix.cols == 1 for matrix in matrices)
    assert any(matrix.cols > 65_536 and matrix.col_idx.max() > 65_536 for matrix in matrices if matrix.nnz)
    assert any(row.size and row.max() > 2_048 for row in lengths)
    assert any(row.size and np.all(row == 1) for row in lengths)
    assert any(row.size > 2 and row[0] == row[-1] == 0 and row.any() for row in lengths)
    rows = {matrix.rows for matrix in matrices}
    assert {32, 33, 63, 65, 127, 129, 256, 1_025} <= rows
    assert sum(matrix.rows for matrix in matrices) < 2_500
    assert sum(matrix.nnz for matrix in matrices) < 10_000
    assert len({matrix.name for matrix in matrices}) == len(matrices)


def test_every_matrix_of_the_set_is_canonical() -> None:
    for matrix in adversarial_matrices("spmm", 4):
        assert matrix.row_ptr[0] == 0
        assert matrix.row_ptr[-1] == len(matrix.col_idx) == len(matrix.values)
        for row in range(matrix.rows):
            columns = matrix.col_idx[matrix.row_ptr[row] : matrix.row_ptr[row + 1]]
            assert np.all(np.diff(columns) > 0)
            assert columns.size == 0 or (columns[0] >= 0 and columns[-1] < matrix.cols)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_each_format_fits_enough_of_the_set(name: str) -> None:
    spec = format_spec(name, {})
    fits = 0
    for matrix in adversarial_matrices("spmv", 1):
        try:
            convert(spec, matrix)
        except FormatNotApplicable:
            continue
        fits += 1
    assert fits >= MIN_APPLICABLE


def test_the_wide_matrix_is_left_out_of_wide_products() -> None:
    assert max(matrix.cols for matrix in adversarial_matrices("spmm", 16)) == 70_001
    assert max(matrix.cols for matrix in adversarial_matrices("spmm", 17)) < 65_536


# -- settings, timing, text, memory


def test_the_defaults_are_those_of_the_settings_file() -> None:
    assert judge_defaults() == load(ROOT / "params.yaml").judge


def test_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "gpu_architecture", lambda: None)
    assert resolve_backend(judge_defaults()) == ("emulator", "sm_90")
    assert resolve_backend(judge_defaults(arch="sm_80")) == ("emulator", "sm_80")
    with pytest.raises(UserError, match="nvidia-smi shows none"):
        resolve_backend(judge_defaults(backend="gpu"))
    monkeypatch.setattr(options, "gpu_architecture", lambda: "sm_90")
    assert resolve_backend(judge_defaults()) == ("gpu", "sm_90")
    assert resolve_backend(judge_defaults(backend="emulator")) == ("emulator", "sm_90")
    assert resolve_backend(judge_defaults(arch="sm_100")) == ("emulator", "sm_100")
    with pytest.raises(UserError, match="this machine's GPU is sm_90"):
        resolve_backend(judge_defaults(backend="gpu", arch="sm_80"))


def test_a_memo_forgets_the_least_recently_used() -> None:
    made: list[int] = []

    def make(number: int) -> bytes:
        made.append(number)
        return bytes(40)

    memo: Memo[bytes] = Memo(100, len)
    for number in (1, 2, 1, 3, 1, 2):
        memo.get(number, lambda number=number: make(number))
    assert made == [1, 2, 3, 2]


def test_drawn_numbers_are_signed_spread_and_never_small() -> None:
    numbers = signed(np.uint64(2**64 - 5), 20_000)
    magnitudes = np.abs(numbers)
    assert 0.25 <= magnitudes.min() < 0.251 < 0.999 < magnitudes.max() <= 1
    assert abs(np.mean(numbers > 0) - 0.5) < 0.02
    assert abs(np.mean(magnitudes) - 0.625) < 0.01
    assert len(np.unique(numbers)) == len(numbers)
    assert not np.intersect1d(numbers, signed(np.uint64(2**40), 20_000)).size
    assert abs(np.mean(coins(np.uint64(7), 20_000)) - 0.5) < 0.02
