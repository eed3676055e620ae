import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.kernel.expression import LIMIT, ExpressionError, parse_expression

NAMES = {"rows": 100, "nnz": 1000, "zero": 0, "slices": 4}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("rows", 100),
        ("ceil_div(rows,32)", 4),
        ("ceil_div(zero, 32)", 0),
        ("next_pow2(rows)", 128),
        ("next_pow2(64)", 64),
        ("next_pow2(zero)", 1),
        ("min(rows, nnz, 7)", 7),
        ("max(rows,1)*2 + -3", 197),
        ("(rows + 28) // 32 % 3", 1),
        ("2 - 3 - 4", -5),
        ("-7 // 2", -4),
        ("2*(3+4)*5", 70),
        ("slices*32", 128),
    ],
)
def test_values(text, value):
    assert parse_expression(text).evaluate(NAMES) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a number, a name or '(' in '', found the end"),
        ("1 2", "unexpected '2'"),
        ("rows **2", "operator **"),
        ("rows / 2", "operator /"),
        ("(rows", "expected ')'"),
        ("pow(2,3)", "unknown function pow; expected one of min, max, ceil_div, next_pow2"),
        ("ceil_div(1)", "ceil_div takes 2 arguments"),
        ("min(1)", "min takes 2 to 8 arguments"),
        ("__import__('os')", 'unexpected "\'"'),
        ("rows.bit_length", "unexpected '.'"),
        ("99999999999999999999", "too large"),
        ("1" + "+1" * 300, "601 characters"),
        ("(" * 60 + "1" + ")" * 60, "nested over 40 deep"),
        ("-" * 60 + "1", "nested over 40 deep"),
        ("²", "unexpected '²'"),
        ("٣", "unexpected '٣'"),
    ],
)
def test_what_cannot_be_parsed_says_why(text, message):
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("columns", "unknown name columns; expected one of nnz, rows, slices, zero"),
        ("rows // zero", "division by zero in //"),
        ("rows % zero", "division by zero in %"),
        ("ceil_div(1, zero)", "division by zero in ceil_div"),
        ("9000000000000000000*2", "2^63"),
        ("next_pow2(9000000000000000000)", "2^63"),
    ],
)
def test_what_cannot_be_evaluated_says_why(text, message):
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text).evaluate(NAMES)
    assert message in str(caught.value)


@settings(max_examples=2000, deadline=None)
@given(st.text(alphabet="0123456789+-*/%(), rowsnzmixceil_divp2\n\t.²'", max_size=60))
def test_any_text_gives_a_bounded_whole_number_or_an_error(text):
    try:
        value = parse_expression(text).evaluate(NAMES)
    except ExpressionError:
        return
    assert type(value) is int
    assert abs(value) < LIMIT


_TREES = st.recursive(
    st.integers(0, 50).map(str) | st.sampled_from(["rows", "slices"]),
    lambda t: st.tuples(t, st.sampled_from(["+", "-", "*"]), t).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(_TREES)
def test_arithmetic_agrees_with_python(text):
    assert parse_expression(text).evaluate(NAMES) == eval(text, {}, dict(NAMES))  # the text is ours
