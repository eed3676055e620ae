"""The four suites: matrices (manifest), corpus, pairs, measurements."""

import json
from typing import TYPE_CHECKING, Any

from components.quality.rules import (
    ARCH,
    SHA256,
    Column,
    Derived,
    Kind,
    Limits,
    Suite,
    at_most,
    between,
    lacks,
    length,
    matches,
    one_of,
    unique,
    unique_together,
)

if TYPE_CHECKING:
    import pandas as pd

SPLITS = ("train", "validation", "test")
FIELDS = ("real", "integer", "pattern", "complex")
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
STRUCTURE_CLASSES = (
    "tiny",
    "diagonal",
    "hypersparse",
    "rectangular",
    "dense-rows",
    "power-law",
    "stencil",
    "block",
    "banded",
    "uniform",
    "other",
)
OPERATORS = ("spmv", "spmm")
DTYPES = ("float32", "float64", "float16", "bfloat16")
STATUSES = (  # the judge's ladder; a test holds the two equal, an import would make quality depend on the judge
    "unparsable",
    "contract",
    "compile_error",
    "launch_error",
    "illegal_access",
    "race",
    "timeout",
    "tampered",
    "wrong",
    "unsupported",
    "correct",
)
TIMINGS = ("measured", "modelled")
COPYLEFT = r"(?i)GNU\s+(?:Lesser\s+|Affero\s+)?General\s+Public\s+Licen[sc]e|SPDX-License-Identifier:\s*(?:A|L)?GPL"
REGISTERS_MAX = 255  # per thread, since sm_35 (CUDA C++ Programming Guide, compute capabilities)


def suite(kind: Kind, limits: Limits) -> Suite:
    """The suite of one kind of table."""
    if kind == "matrices":
        return _matrices()
    if kind == "corpus":
        return _corpus(limits)
    if kind == "pairs":
        return _pairs(limits)
    return _measurements()


def _matrices() -> Suite:
    return Suite(
        identity=("matrix",),
        columns=(
            *_texts("matrix", "name", "group", "source", "sha256", "field", "symmetry", "structure_class", "split"),
            *_integers("rows", "cols", "nnz", "nnz_stored", "duplicates", "explicit_zeros"),
        ),
        rules=(
            unique("matrix"),
            matches("sha256", SHA256, "sha256 is 64 lower-case hex digits"),
            between("rows", 1, 2**31 - 1),
            between("cols", 1, 2**31 - 1),
            between("nnz", 1, 2**31 - 1),
            between("nnz_stored", 1),
            between("duplicates", 0),
            between("explicit_zeros", 0),
            at_most("duplicates", "nnz_stored"),
            at_most("explicit_zeros", "nnz"),
            one_of("field", FIELDS),
            one_of("symmetry", SYMMETRIES),
            one_of("structure_class", STRUCTURE_CLASSES),
            one_of("split", SPLITS),
        ),
        derived=(
            Derived(
                "matrix is group/name",
                ("matrix", "group", "name"),
                lambda f: f["matrix"] == f["group"] + "/" + f["name"],
            ),
            Derived(
                "nnz <= rows * cols",
                ("rows", "cols", "nnz"),
                lambda f: f["nnz"].astype(float) <= f["rows"].astype(float) * f["cols"].astype(float),
            ),
            Derived(
                "nnz <= 2 * nnz_stored when symmetric, <= nnz_stored when general",
                ("nnz", "nnz_stored", "symmetry"),
                lambda f: f["nnz"] <= f["nnz_stored"] * (1 + (f["symmetry"] != "general").astype(int)),
            ),
            Derived(
                "rows = cols when symmetric",
                ("rows", "cols", "symmetry"),
                lambda f: (f["symmetry"] == "general") | (f["rows"] == f["cols"]),
            ),
            Derived(
                "no group in two splits",
                ("group", "split"),
                lambda f: f.groupby("group")["split"].transform("nunique") == 1,
            ),
            Derived(
                "no content (sha256) in two splits",
                ("sha256", "split"),
                lambda f: f.groupby("sha256")["split"].transform("nunique") == 1,
            ),
        ),
        rest_is_numeric=True,
    )


def _corpus(limits: Limits) -> Suite:
    return Suite(
        identity=("package", "path"),
        columns=(
            *_texts("text", "package", "version", "path", "license", "sha256"),
            *_integers("n_bytes", "sparse_score"),
        ),
        rules=(
            length("text", 1, limits.max_file_bytes),
            matches("text", r"\S", "text is not blank"),
            lacks("text", COPYLEFT, "text carries no GPL notice"),
            lacks("text", "\x00", "text holds no NUL"),
            one_of("license", limits.licenses),
            matches("sha256", SHA256, "sha256 is 64 lower-case hex digits"),
            unique("sha256"),
            unique_together("package", "path"),
            between("n_bytes", 1, limits.max_file_bytes),
            between("sparse_score", 0),
        ),
        derived=(
            Derived("n_bytes is the length of text in UTF-8", ("text", "n_bytes"), _bytes_match),
            Derived("sha256 is the hash of text", ("text", "sha256"), _hash_matches),
            Derived(
                "path is relative and stays inside its package",
                ("path",),
                lambda f: ~(f["path"].str.startswith("/") | f["path"].str.contains(r"(?:^|/)\.\.(?:/|$)|\\")),
                ("path",),
            ),
        ),
    )


def _pairs(limits: Limits) -> Suite:
    target = ["matrix", "operator", "width", "dtype", "arch"]
    return Suite(
        identity=("matrix", "operator", "program_hash"),
        columns=(
            *_texts("matrix", "split", "operator", "dtype", "arch", "program_hash", "family", "parameters", "source"),
            Column("timing", "text"),
            Column("width", "integer"),
            *_reals("time_us", "baseline_us", "quality"),
        ),
        rules=(
            # The test split is held out: a pair of it would be trained on.
            one_of("split", ("train", "validation")),
            *_problem_rules(),
            one_of("timing", TIMINGS),
            between("time_us", 0, above=True),
            between("baseline_us", 0, above=True),
            between("quality", 0, 1, above=True),
            matches("source", r"^// format: \S", "source begins with its `// format:` line"),
            matches("source", r"(?m)^// launch: \w+ .*grid=.*block=", "source has a `// launch:` line"),
            matches("source", r'extern "C"\s+__global__\s+void\s', "source defines a kernel"),
            length("source", 1, limits.max_source_bytes),
            unique_together(*target, "program_hash"),
        ),
        derived=(
            *_problem_relations(),
            Derived(
                "a matrix is in one split",
                ("matrix", "split"),
                lambda f: f.groupby("matrix")["split"].transform("nunique") == 1,
            ),
            Derived(
                "one source per program_hash",
                ("program_hash", "source"),
                lambda f: f.groupby("program_hash")["source"].transform("nunique") == 1,
                ("program_hash",),
            ),
            Derived(
                "quality is the best time of the problem over this time",
                (*target, "time_us", "quality"),
                lambda f: (
                    (f["quality"] * f["time_us"] / f.groupby(target)["time_us"].transform("min") - 1).abs() < 1e-3
                ),
                ("time_us", "quality"),
            ),
        ),
    )


def _measurements() -> Suite:
    return Suite(
        identity=("matrix", "operator", "program_hash"),
        columns=(
            *_texts("matrix", "operator", "dtype", "arch", "program_hash", "family", "parameters", "status"),
            Column("width", "integer"),
            *(Column(name, "text", nullable=True) for name in ("gpu", "timing", "driver", "compiler", "format")),
            Column("baseline", "text", nullable=True),
            *(Column(name, "real", nullable=True) for name in ("time_us", "baseline_us", "convert_us")),
            *(Column(n, "integer", True) for n in ("bytes_moved", "registers", "spill_bytes", "shared_bytes")),
        ),
        rules=(
            *_problem_rules(),
            one_of("status", STATUSES),
            one_of("timing", TIMINGS),
            between("time_us", 0),
            between("baseline_us", 0, above=True),
            between("convert_us", 0),
            between("bytes_moved", 0),
            between("registers", 0, REGISTERS_MAX),
            between("spill_bytes", 0),
            between("shared_bytes", 0),
        ),
        derived=(
            *_problem_relations(),
            Derived(
                "time_us is there when the status is correct, and only then",
                ("status", "time_us"),
                lambda f: (f["status"] == "correct") == f["time_us"].notna(),
            ),
            Derived(
                "a correct row says its timing",
                ("status", "timing"),
                lambda f: (f["status"] != "correct") | f["timing"].notna(),
            ),
            Derived(
                "gpu is named when the timing is measured, and only then",
                ("timing", "gpu"),
                lambda f: (f["timing"] == "measured").fillna(False) == f["gpu"].notna(),
            ),
            Derived(
                "baseline and baseline_us come together",
                ("baseline", "baseline_us"),
                lambda f: f["baseline"].notna() == f["baseline_us"].notna(),
            ),
            Derived("measured and modelled times are not mixed", ("timing",), _one_timing),
            Derived(
                "one row per matrix, operator, width, dtype, arch, gpu and program",
                ("matrix", "operator", "width", "dtype", "arch", "gpu", "program_hash"),
                lambda f: (
                    ~f.duplicated(["matrix", "operator", "width", "dtype", "arch", "gpu", "program_hash"], keep=False)
                ),
            ),
        ),
    )


def _problem_rules() -> tuple[Any, ...]:
    return (
        one_of("operator", OPERATORS),
        one_of("dtype", DTYPES),
        between("width", 1),
        matches("arch", ARCH, "arch is sm_XX"),
        matches("program_hash", SHA256, "program_hash is 64 lower-case hex digits"),
    )


def _problem_relations() -> tuple[Derived, ...]:
    return (
        Derived("width is 1 for spmv", ("operator", "width"), lambda f: (f["operator"] != "spmv") | (f["width"] == 1)),
        Derived("parameters is a JSON object", ("parameters",), lambda f: f["parameters"].map(_is_object)),
    )


def _one_timing(frame: "pd.DataFrame") -> "pd.Series[bool]":
    """False on the rows of the rarer kind when both kinds occur."""
    counts = frame["timing"].value_counts()
    usual = counts.index[0] if len(counts) else None
    return frame["timing"].isna() | (frame["timing"] == usual)


def _bytes_match(frame: "pd.DataFrame") -> "pd.Series[bool]":
    return frame["text"].map(lambda text: len(str(text).encode("utf-8", "surrogatepass"))) == frame["n_bytes"]


def _hash_matches(frame: "pd.DataFrame") -> "pd.Series[bool]":
    import hashlib

    hashes = frame["text"].map(lambda text: hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest())
    return hashes == frame["sha256"]


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False


def _texts(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "text") for name in names)


def _integers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "integer") for name in names)


def _reals(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, "real") for name in names)
