"""Precisions: storing and reading back, and what the judge says of programs in each."""

import numpy as np
import pytest

from components.errors import UserError
from components.kernel.precision import BFLOAT16, FLOAT16, PRECISIONS, get_precision


@pytest.mark.parametrize("precision", PRECISIONS.values(), ids=PRECISIONS)
def test_stored_numbers_are_read_back_exactly(precision):
    numbers = np.random.default_rng(1).uniform(-1, 1, 1000) * precision.tiny
    stored = precision.encode(numbers)
    assert stored.dtype == precision.value_dtype
    assert stored.itemsize == precision.value_bytes
    seen = precision.decode(stored)
    assert np.array_equal(precision.encode(seen), stored)
    significant = {"float32": 24, "float64": 53, "float16": 11, "bfloat16": 8}[precision.name]
    assert np.all(np.abs(seen - numbers) <= np.abs(numbers) * 2.0**-significant + 2.0**-25)


def test_bfloat16_rounds_to_nearest_even():
    halfway = 1 + 2.0**-8  # between 1 and 1 + 2^-7
    above = 1 + 3 * 2.0**-8  # between 1 + 2^-7 and 1 + 2^-6
    assert BFLOAT16.decode(BFLOAT16.encode(np.array([halfway, above, -halfway]))).tolist() == [1, 1 + 2.0**-6, -1]


def test_tiny_float16_values_are_normal_numbers():
    assert 0.25 * FLOAT16.tiny >= np.finfo(np.float16).smallest_normal


def test_an_unknown_precision_is_refused():
    with pytest.raises(UserError, match="expected one of float32, float64, float16, bfloat16"):
        get_precision("float8")
