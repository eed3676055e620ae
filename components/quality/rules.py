"""What each table must satisfy, as data: columns with their kinds, and rules over them.

A rule is one Great Expectations expectation with a sentence for people. Relations between columns become a derived
column (`Derived`), so that every failure can name the rows it failed on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["matrices", "corpus", "pairs", "measurements"]

SHA256 = r"^[0-9a-f]{64}$"
ARCH = r"^sm_\d+$"


@dataclass(frozen=True)
class Limits:
    """What a stage may tighten or widen from params.yaml."""

    licenses: tuple[str, ...] = ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "Apache-2.0 OR MIT")
    max_file_bytes: int = 200 * 1024
    max_source_bytes: int = 16 * 1024  # of a kernel program


@dataclass(frozen=True)
class Column:
    """One column of a table.

    kind: "text" (str), "integer", "real" (finite), each checked per row; nullable: missing values allowed.
    """

    name: str
    kind: Literal["text", "integer", "real"]
    nullable: bool = False


@dataclass(frozen=True)
class Rule:
    """One expectation.

    says: the sentence a person reads when it fails; expectation: the class name in
    great_expectations.expectations.core; arguments: its keyword arguments; shows: the columns whose values are quoted
    for a failing row.
    """

    says: str
    expectation: str
    arguments: Mapping[str, Any]
    shows: tuple[str, ...]


@dataclass(frozen=True)
class Derived:
    """A rule over several columns: `holds(frame)` is a boolean per row, and `needs` the columns it reads."""

    says: str
    needs: tuple[str, ...]
    holds: "Callable[[pd.DataFrame], pd.Series[bool]]"
    shows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """All that one kind of table must satisfy; `identity` are the columns that name a row in messages."""

    identity: tuple[str, ...]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]
    derived: tuple[Derived, ...] = field(default=())
    rest_is_numeric: bool = False  # columns beyond the listed ones are finite numbers (matrix features)


def between(column: str, low: float | None = None, high: float | None = None, *, above: bool = False) -> Rule:
    """`low <= column <= high`, or `low < column` with `above`."""
    bounds = [f"{column} {'>' if above else '>='} {low}"] if low is not None else []
    bounds += [f"{column} <= {high}"] if high is not None else []
    arguments = {"column": column, "min_value": low, "max_value": high, "strict_min": above}
    return Rule(" and ".join(bounds), "ExpectColumnValuesToBeBetween", arguments, (column,))


def one_of(column: str, values: tuple[str, ...]) -> Rule:
    """Every value is one of `values`."""
    arguments = {"column": column, "value_set": list(values)}
    return Rule(f"{column} is one of {', '.join(values)}", "ExpectColumnValuesToBeInSet", arguments, (column,))


def matches(column: str, regex: str, says: str) -> Rule:
    """Every value matches the regular expression."""
    return Rule(says, "ExpectColumnValuesToMatchRegex", {"column": column, "regex": regex}, (column,))


def lacks(column: str, regex: str, says: str) -> Rule:
    """No value matches the regular expression."""
    return Rule(says, "ExpectColumnValuesToNotMatchRegex", {"column": column, "regex": regex}, ())


def length(column: str, low: int, high: int) -> Rule:
    """Texts of `low` to `high` characters."""
    arguments = {"column": column, "min_value": low, "max_value": high}
    return Rule(f"{column} has {low} to {high} characters", "ExpectColumnValueLengthsToBeBetween", arguments, ())


def unique(column: str) -> Rule:
    """No value twice."""
    return Rule(f"{column} is unique", "ExpectColumnValuesToBeUnique", {"column": column}, (column,))


def unique_together(*columns: str) -> Rule:
    """No combination of values twice."""
    arguments = {"column_list": list(columns)}
    return Rule(f"{', '.join(columns)} are unique together", "ExpectCompoundColumnsToBeUnique", arguments, columns)


def at_most(column: str, other: str) -> Rule:
    """`column <= other`, row by row."""
    arguments = {"column_A": other, "column_B": column, "or_equal": True, "ignore_row_if": "either_value_is_missing"}
    return Rule(f"{column} <= {other}", "ExpectColumnPairValuesAToBeGreaterThanB", arguments, (column, other))
