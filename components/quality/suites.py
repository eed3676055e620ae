"""Run a table through its Great Expectations suite; a failure is an error that names the rows.

report = validate("matrices", frame)
files.write_json(root / "data/quality/matrices.json", report.to_dict())
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from components.errors import UserError
from components.quality.rules import Column, Derived, Kind, Limits, Rule, Suite
from components.quality.tables import suite as suite_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

SHOWN_ROWS = 5
SHOWN_CHARACTERS = 80
ROW = "_row"


@dataclass(frozen=True)
class Outcome:
    """One expectation: what it says, which rows (positions) broke it, and up to five of them as `id: column=value`."""

    says: str
    success: bool
    rows: tuple[int, ...] = ()
    examples: tuple[str, ...] = ()

    @property
    def unexpected(self) -> int:
        """How many rows broke it; 0 when it holds, or is about the table and not its rows."""
        return len(self.rows)


@dataclass(frozen=True)
class QualityReport:
    """What one validation found; `kind` is the suite, `rows` the table's length."""

    kind: str
    rows: int
    outcomes: tuple[Outcome, ...]

    @property
    def success(self) -> bool:
        """Whether every expectation held."""
        return all(outcome.success for outcome in self.outcomes)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The expectations that did not hold."""
        return tuple(outcome for outcome in self.outcomes if not outcome.success)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; the same table gives the same bytes (no clock in it)."""
        return {
            "kind": self.kind,
            "rows": self.rows,
            "success": self.success,
            "expectations": [
                {"says": o.says, "success": o.success, "unexpected": o.unexpected, "examples": list(o.examples)}
                for o in self.outcomes
            ],
        }


class QualityError(UserError):
    """A table broke its suite; the message names each failed expectation and up to five rows of it."""

    def __init__(self, report: QualityReport):
        parts = []
        for failure in report.failures:
            rows = f"; rows: {' | '.join(failure.examples)}" if failure.examples else ""
            more = failure.unexpected - len(failure.examples)
            parts.append(f'"{failure.says}" failed{rows}{f" and {more} more" if more > 0 and failure.examples else ""}')
        super().__init__(f"{report.kind}: {report.rows} rows checked: {'; '.join(parts)}")
        self.report = report


def validate(kind: Kind, frame: "pd.DataFrame", limits: Limits | None = None) -> QualityReport:
    """Check a table against its suite.

    Args:
        kind: matrices, corpus, pairs or measurements.
        frame: the table; its index is ignored and it is not changed.
        limits: allow-lists and sizes from params.yaml, where they differ from the defaults.

    Returns:
        The report, all expectations met.

    Raises:
        QualityError: at least one was not; `.report` holds all of them.
    """
    if kind not in get_args(Kind):
        raise UserError(f"quality: expected one of {', '.join(get_args(Kind))}, found {kind!r}")
    suite = suite_of(kind, limits or Limits())
    outcomes = _schema(suite, frame)
    if all(outcome.success for outcome in outcomes):
        # Values are looked at once every column is there and well typed: before that they cannot be compared.
        outcomes += _values(suite, frame)
    report = QualityReport(kind, len(frame), tuple(outcomes))
    if not report.success:
        raise QualityError(report)
    return report


def _schema(suite: Suite, frame: "pd.DataFrame") -> list[Outcome]:
    present = [column for column in suite.columns if column.name in frame.columns]
    extra = [str(name) for name in frame.columns if name not in {column.name for column in suite.columns}]
    typed = [*present, *(Column(name, "real") for name in extra)] if suite.rest_is_numeric else present
    rules = [Rule("the table has rows", "ExpectTableRowCountToBeBetween", {"min_value": 1}, ())]
    rules += [
        Rule(f"column {column.name} is there", "ExpectColumnToExist", {"column": column.name}, ())
        for column in suite.columns
    ]
    rules += [
        Rule(f"{c.name} is not missing", "ExpectColumnValuesToNotBeNull", {"column": c.name}, (c.name,))
        for c in typed
        if not c.nullable
    ]
    derived = [
        Derived(_TYPE_SAYS[c.kind].format(c.name), (c.name,), partial(_well_typed, column=c), (c.name,)) for c in typed
    ]
    return _run(frame, suite.identity, rules, derived)


def _values(suite: Suite, frame: "pd.DataFrame") -> list[Outcome]:
    import pandas as pd

    numbers = {c.name: pd.to_numeric(frame[c.name]) for c in suite.columns if c.kind != "text"}
    return _run(frame.assign(**numbers), suite.identity, suite.rules, suite.derived)


_TYPE_SAYS = {"text": "{} is text", "integer": "{} is a whole number", "real": "{} is a finite number"}


def _well_typed(frame: "pd.DataFrame", column: Column) -> "pd.Series[bool]":
    import numpy as np
    import pandas as pd

    values = frame[column.name]
    missing = values.isna()
    if column.kind == "text":
        return missing | values.map(lambda value: isinstance(value, str)).astype(bool)
    plain = values.map(lambda value: not isinstance(value, str | bool)).astype(bool)
    numbers = pd.to_numeric(values.where(plain), errors="coerce").astype(float)
    array = numbers.to_numpy()
    good = np.isfinite(array)
    if column.kind == "integer":
        good = good & (array == np.floor(array))
    return missing | pd.Series(good, index=frame.index)


def _run(
    frame: "pd.DataFrame", identity: "Sequence[str]", rules: "Sequence[Rule]", derived: "Sequence[Derived]"
) -> list[Outcome]:
    """Evaluate rules in one Great Expectations pass and translate what it says into outcomes, in the rules' order."""
    table = frame.reset_index(drop=True)
    table[ROW] = range(len(table))
    for number, relation in enumerate(derived):
        table[f"_rule_{number}"] = relation.holds(table).astype("boolean").fillna(False).astype(bool)
    flags = [
        Rule(
            relation.says,
            "ExpectColumnValuesToBeInSet",
            {"column": f"_rule_{number}", "value_set": [True]},
            relation.shows or relation.needs,
        )
        for number, relation in enumerate(derived)
    ]
    everything = [*rules, *flags]
    results = _expect(table, everything)
    return [_outcome(rule, results[number], table, identity) for number, rule in enumerate(everything)]


def _outcome(rule: Rule, result: Any, table: "pd.DataFrame", identity: "Sequence[str]") -> Outcome:
    if result.success:
        return Outcome(rule.says, True)
    details = result.result or {}
    rows = sorted({int(entry[ROW]) for entry in details.get("unexpected_index_list") or ()})
    if not rows:
        seen = details.get("observed_value")
        note = f" (found {seen})" if seen is not None else _exception_note(result.exception_info)
        return Outcome(rule.says + note, False)
    examples = tuple(_describe(table, row, identity, rule.shows) for row in rows[:SHOWN_ROWS])
    return Outcome(rule.says, False, tuple(rows), examples)


def _describe(table: "pd.DataFrame", row: int, identity: "Sequence[str]", shows: "Sequence[str]") -> str:
    known = [str(table[name].iloc[row]) for name in identity if name in table.columns]
    name = _clip(" ".join(known)) or f"row {row}"
    values = [f"{column}={_clip(str(table[column].iloc[row]))}" for column in shows if column not in identity]
    return f"{name}: {', '.join(values)}" if values else name


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARACTERS else line[: SHOWN_CHARACTERS - 3] + "..."


def _exception_note(info: Any) -> str:
    """The reason when an expectation could not be evaluated at all, which never counts as met."""
    entries = [info] if isinstance(info, dict) and "exception_message" in info else list((info or {}).values())
    messages = [str(entry.get("exception_message")) for entry in entries if entry.get("raised_exception")]
    return f" ({_clip(messages[0])})" if messages else ""


def _expect(table: "pd.DataFrame", rules: "Sequence[Rule]") -> dict[int, Any]:
    """One validation run; results keyed by the rule's position."""
    gx, expectations, quiet = _great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = quiet
    batch = context.data_sources.add_pandas("frame").add_dataframe_asset("table")
    suite = gx.ExpectationSuite(
        name="suite",
        expectations=[
            getattr(expectations, rule.expectation)(**rule.arguments, meta={"rule": number})
            for number, rule in enumerate(rules)
        ],
    )
    definition = gx.ValidationDefinition(
        name="validation", data=batch.add_batch_definition_whole_dataframe("whole"), suite=context.suites.add(suite)
    )
    result = context.validation_definitions.add(definition).run(
        batch_parameters={"dataframe": table},
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": [ROW]},
    )
    return {entry.expectation_config.meta["rule"]: entry for entry in result.results}


def _great_expectations() -> "tuple[Any, Any, Any]":
    """Import the library with telemetry off and without progress bars; it takes two seconds, so only when used."""
    import logging
    import os

    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    os.environ.setdefault("DO_NOT_TRACK", "true")
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig
    from great_expectations.expectations import core

    logging.getLogger("great_expectations").setLevel(logging.ERROR)
    logging.captureWarnings(False)  # its import turns warnings of the whole process into log records
    return gx, core, ProgressBarsConfig(globally=False, metric_calculations=False)
