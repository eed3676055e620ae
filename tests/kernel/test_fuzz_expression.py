"""Launch expressions: whatever the text, a value below 2^63 or one line of why not, soon.

SPARSERL_FUZZ=20000 says how many inputs; the default is a quick look.
"""

import os
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.kernel.expression import LIMIT, ExpressionError, parse_expression

COUNT = int(os.environ.get("SPARSERL_FUZZ", "300"))
NAMES = {"rows": 97, "cols": 70_001, "nnz": 2**31 - 1, "zero": 0, "slices": 4, "width": 33}
CPU_S = 1.0  # of one input; the longest legal one takes about a millisecond

fuzz = settings(
    max_examples=COUNT,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

_PIECES = [
    *NAMES, "min", "max", "ceil_div", "next_pow2", "pow", "eval", "__import__", "lambda", "rows.real", "if", "else",
    "+", "-", "*", "//", "%", "/", "**", "(", ")", ",", ":", "=", "[", "]", "'", '"', "\\", "\n", "\t", " ", "_", "0",
    "00", "1", "7", "1e9", "0x1f", "1_000", "9" * 18, "9" * 19, "9" * 40, str(2**63), str(2**63 - 1), "٣", "²", "é",
    "\x00", "\u2028", "\ufeff", "rows" * 40, "(" * 45, ")" * 45, "-" * 45, "1+" * 60,
]  # fmt: skip
anything = st.one_of(st.lists(st.sampled_from(_PIECES), max_size=40).map("".join), st.text(max_size=450))


def _combine(parts: tuple[str, list[tuple[str, int | None]]]) -> tuple[str, int | None]:
    """The text of an operator or function on operands, and its value by Python's own integers (None: refused)."""
    operator, operands = parts
    texts, values = [text for text, _ in operands], [value for _, value in operands]
    if operator in ("min", "max"):
        text = f"{operator}({', '.join(texts)})"
        return text, None if None in values else _bounded({"min": min, "max": max}[operator](values))
    first, second = values[0], values[1]
    if operator == "next_pow2":
        power = 1
        while first is not None and power < first:
            power *= 2
        return f"next_pow2({texts[0]})", None if first is None else _bounded(power)
    if operator == "negate":
        return f"-({texts[0]})", None if first is None else _bounded(-first)
    text = f"ceil_div({texts[0]},{texts[1]})" if operator == "ceil_div" else f"({texts[0]}){operator}({texts[1]})"
    if first is None or second is None or (second == 0 and operator in ("//", "%", "ceil_div")):
        return text, None
    if operator == "ceil_div":
        quotient, rest = divmod(first, second)
        return text, _bounded(quotient + (rest != 0))
    results = {"+": first + second, "-": first - second, "*": first * second}
    if operator in ("//", "%"):
        results |= {"//": first // second, "%": first % second}
    return text, _bounded(results[operator])


def _bounded(value: int) -> int | None:
    return value if abs(value) < LIMIT else None


_leaf = st.one_of(
    st.sampled_from(sorted(NAMES)).map(lambda name: (name, NAMES[name])),
    st.integers(0, LIMIT - 1).map(lambda number: (str(number), number)),
    st.integers(0, 300).map(lambda number: (f" {number} ", number)),
)
_operator = st.sampled_from(["+", "-", "*", "//", "%", "ceil_div", "min", "max", "next_pow2", "negate"])
well_formed = st.recursive(
    _leaf, lambda inner: st.tuples(_operator, st.lists(inner, min_size=2, max_size=4)).map(_combine), max_leaves=12
)


def _evaluated(text: str) -> int | str:
    """The value, or the message of the refusal; checks what holds for either."""
    start = time.process_time()
    try:
        value: int | str = parse_expression(text).evaluate(NAMES)
    except ExpressionError as error:
        value = str(error)
    assert time.process_time() - start < CPU_S
    if isinstance(value, int):
        assert type(value) is int
        assert abs(value) < LIMIT
    else:
        assert value
        assert "\n" not in value
        assert len(value) < 3_000
    return value


@fuzz
@given(anything)
def test_any_text_is_a_bounded_value_or_a_refusal(text: str) -> None:
    _evaluated(text)


@fuzz
@given(well_formed)
def test_a_well_formed_expression_has_the_value_that_arithmetic_gives_it(case: tuple[str, int | None]) -> None:
    text, expected = case
    found = _evaluated(text)
    if len(text) > 400 or expected is None:
        assert isinstance(found, str)
    elif isinstance(found, str):
        assert "deep" in found
    else:
        assert found == expected
