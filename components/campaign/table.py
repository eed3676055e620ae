"""What every row of the campaign's tables must satisfy; the helpers are those of components/quality."""

from typing import TYPE_CHECKING, Any, cast

from components.campaign.search import PRUNED
from components.files import sha256_text
from components.quality.rules import ARCH, SHA256, Column, Derived, Kind, Suite, between, matches, one_of, unique
from components.quality.suites import Outcome, QualityError, QualityReport, _schema, _values
from components.quality.tables import DTYPES, OPERATORS, REGISTERS_MAX, STATUSES, STRUCTURE_CLASSES, TIMINGS

if TYPE_CHECKING:
    import pandas as pd

PROBLEM = ("matrix", "operator", "width", "dtype", "arch", "gpu")
MEASUREMENT = (*PROBLEM, "program_hash", "phase", "round")  # what names one row
PLACE = "place"  # shard and line: how messages name a row

_TEXTS = (
    "matrix", "structure_class", "operator", "dtype", "arch", "family", "parameters", "format", "program_hash",
    "status", "phase", "session",
)  # fmt: skip
_TEXTS_OR_NULL = (
    "gpu", "message", "failed_on", "code_hash", "timing", "driver", "compiler", "baseline", "baselines",
    "unreliable_because", "throttle",
)  # fmt: skip
_INTEGERS = ("rows", "cols", "nnz", "width", "round")
_INTEGERS_OR_NULL = (
    "samples", "bytes_stored", "bytes_moved", "registers", "spill_bytes", "shared_bytes",
)  # fmt: skip
_REALS_OR_NULL = (
    "time_us", "p10_us", "p90_us", "cv", "time_cold_us", "baseline_us", "speedup", "speedup_low", "speedup_high",
    "speedup_cold", "speedup_cold_low", "speedup_cold_high", "convert_us", "break_even", "floor_us", "compile_ms",
    "sm_mhz", "memory_mhz", "temperature_c", "gpu_seconds",
)  # fmt: skip
FLAGS = ("reliable", "from_cache")  # true, false or null
COLUMNS = {
    **dict.fromkeys((*_TEXTS, *_TEXTS_OR_NULL), "text"),
    **dict.fromkeys((*_INTEGERS, *_INTEGERS_OR_NULL), "integer"),
    **dict.fromkeys((*_REALS_OR_NULL, "seconds"), "real"),
    **dict.fromkeys(FLAGS, "flag"),
}


def measurements_suite() -> Suite:
    """The measurements: `COLUMNS`, with `PLACE` and whether sources and features are there."""
    return Suite(
        identity=(PLACE,),
        columns=(
            *(Column(name, "text") for name in (*_TEXTS, PLACE)),
            *(Column(name, "text", nullable=True) for name in _TEXTS_OR_NULL),
            *(Column(name, "integer") for name in _INTEGERS),
            *(Column(name, "integer", nullable=True) for name in _INTEGERS_OR_NULL),
            Column("seconds", "real"),
            *(Column(name, "real", nullable=True) for name in _REALS_OR_NULL),
        ),
        rules=(
            one_of("operator", OPERATORS),
            one_of("dtype", DTYPES),
            one_of("structure_class", STRUCTURE_CLASSES),
            one_of("status", (*STATUSES, PRUNED)),
            one_of("timing", TIMINGS),
            one_of("phase", ("search", "final")),
            matches("arch", ARCH, "arch is sm_XX"),
            matches("program_hash", SHA256, "program_hash is 64 lower-case hex digits"),
            between("rows", 1, 2**31 - 1),
            between("cols", 1, 2**31 - 1),
            between("nnz", 1, 2**31 - 1),
            between("width", 1),
            between("round", 0),
            between("registers", 0, REGISTERS_MAX),
            *(between(name, 0, above=True) for name in ("time_us", "baseline_us", "speedup", "bytes_stored")),
            *(between(name, 0) for name in ("convert_us", "bytes_moved", "spill_bytes", "shared_bytes", "seconds")),
        ),
        derived=(
            *(Derived(f"{name} is true, false or missing", (name,), _flag(name), (name,)) for name in FLAGS),
            _law("width is 1 for spmv", ("operator", "width"), lambda f: (f["operator"] != "spmv") | (f["width"] == 1)),
            _law(
                "time_us is there when the status is correct, and only then",
                ("status", "time_us"),
                lambda f: (f["status"] == "correct") == f["time_us"].notna(),
            ),
            _law(
                "timing goes with time_us",
                ("timing", "time_us"),
                lambda f: f["timing"].notna() == f["time_us"].notna(),
            ),
            _law(
                "a measured time names gpu and driver, a modelled one no gpu",
                ("timing", "gpu", "driver"),
                lambda f: (
                    f["timing"].isna()
                    | ((f["timing"] == "measured") & f["gpu"].notna() & f["driver"].notna())
                    | ((f["timing"] == "modelled") & f["gpu"].isna())
                ),
            ),
            _law(
                "a correct row has a baseline, its time and the speed-up",
                ("status", "baseline", "baseline_us", "speedup"),
                lambda f: (f["status"] != "correct") | f[["baseline", "baseline_us", "speedup"]].notna().all(axis=1),
            ),
            _law(
                "speedup is baseline_us / time_us within a factor of 1.5 where the time is reliable",
                ("speedup", "baseline_us", "time_us", "reliable"),
                lambda f: (
                    f["time_us"].isna()
                    | f["reliable"].map(lambda value: value is False)
                    | (f["speedup"] * f["time_us"] / f["baseline_us"]).between(1 / 1.5, 1.5)
                ),
            ),
            _law(
                "speedup_low <= speedup_high",
                ("speedup_low", "speedup_high"),
                lambda f: f["speedup_low"].isna() | (f["speedup_low"] <= f["speedup_high"]),
            ),
            _law(
                "a pruned row belongs to the search and says its floor",
                ("status", "phase", "floor_us"),
                lambda f: (f["status"] != PRUNED) | ((f["phase"] == "search") & f["floor_us"].notna()),
            ),
            _law(
                "a measured row that is not reliable says why",
                ("reliable", "unreliable_because"),
                lambda f: f["reliable"].map(lambda value: value is False) == f["unreliable_because"].notna(),
            ),
            _law("every program's source is there", ("has_source",), lambda f: f["has_source"].astype(bool)),
            _law("every matrix's features are there", ("has_features",), lambda f: f["has_features"].astype(bool)),
        ),
    )


def sources_suite() -> Suite:
    """The programs' texts."""
    return Suite(
        identity=(PLACE,),
        columns=tuple(Column(name, "text") for name in ("program_hash", "family", "parameters", "source", PLACE)),
        rules=(unique("program_hash"), matches("source", r"^// format: \S", "source begins with its format line")),
        derived=(
            Derived(
                "program_hash is the sha256 of source",
                ("program_hash", "source"),
                lambda f: f["source"].map(lambda text: sha256_text(str(text))) == f["program_hash"],
                ("program_hash",),
            ),
        ),
    )


def matrices_suite() -> Suite:
    """The matrices with their features, which are all finite."""
    texts = ("matrix", "name", "group", "source", "sha256", "field", "symmetry", "structure_class", PLACE)
    return Suite(
        identity=(PLACE,),
        columns=(*(Column(name, "text") for name in texts), *(Column(n, "integer") for n in ("rows", "cols", "nnz"))),
        rules=(unique("matrix"), one_of("structure_class", STRUCTURE_CLASSES), between("nnz", 1)),
        derived=(
            Derived("matrix is group/name", ("matrix",), lambda f: f["matrix"] == f["group"] + "/" + f["name"], ()),
        ),
        rest_is_numeric=True,
    )


def problems_suite() -> Suite:
    """The problems whose search has ended."""
    texts = ("matrix", "structure_class", "operator", "dtype", "arch", "outcome", "session", PLACE)
    integers = ("rows", "cols", "nnz", "width")
    numbers = ("applicable", "judged", "pruned", "finals", "seconds")
    return Suite(
        identity=(PLACE,),
        columns=(
            *(Column(name, "text") for name in texts),
            *(Column(name, "text", nullable=True) for name in ("gpu", "message")),
            *(Column(name, "integer") for name in integers),
            *(Column(name, "real", nullable=True) for name in numbers),
        ),
        rules=(
            one_of("operator", OPERATORS),
            one_of("dtype", DTYPES),
            one_of("structure_class", STRUCTURE_CLASSES),
            one_of("outcome", ("done", "refused")),
            matches("arch", ARCH, "arch is sm_XX"),
            *(between(name, 1) for name in integers),
            *(between(name, 0) for name in numbers),
        ),
        derived=(
            _law(
                "a refused problem says why, a done one how much was judged",
                ("outcome", "message", "judged"),
                lambda f: (
                    (f["outcome"] == "done").where(f["message"].isna(), f["outcome"] == "refused")
                    & (f["judged"].notna() == (f["outcome"] == "done"))
                ),
            ),
        ),
    )


def check(table: str, frame: "pd.DataFrame", suite: Suite) -> None:
    """Raise QualityError naming shard and line of up to five rows of every expectation that failed."""
    outcomes: list[Outcome] = _schema(suite, frame)
    if all(outcome.success for outcome in outcomes):
        outcomes += _values(suite, frame)
    report = QualityReport(cast(Kind, f"campaign's {table}"), len(frame), tuple(outcomes))
    if not report.success:
        raise QualityError(report)


def _law(says: str, needs: tuple[str, ...], holds: Any) -> Derived:
    return Derived(says, needs, holds, tuple(name for name in needs if not name.startswith("has_")))


def _flag(name: str) -> Any:
    return lambda frame: frame[name].map(lambda value: value is None or isinstance(value, bool) or value != value)
