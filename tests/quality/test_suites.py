"""Each suite takes good rows and names the bad ones."""

import hashlib
import json
import typing

import numpy as np
import pandas as pd
import pytest

from components.errors import UserError
from components.judge.verdict import Status, Timing
from components.quality import tables
from components.quality.rules import Limits
from components.quality.suites import QualityError, validate


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def matrices(tag: str = "") -> pd.DataFrame:
    rows = [
        {
            "matrix": f"group{k // 2}{tag}/m{k}",
            "name": f"m{k}",
            "group": f"group{k // 2}{tag}",
            "source": "generated",
            "sha256": digest(f"m{k}{tag}"),
            "rows": 10 + k,
            "cols": 10 + k,
            "nnz": 40,
            "nnz_stored": 40,
            "field": "real",
            "symmetry": "general",
            "duplicates": 0,
            "explicit_zeros": 0,
            "structure_class": "banded",
            "split": ("train", "validation", "test")[k // 2],
            "log_nnz": 1.5,
        }
        for k in range(6)
    ]
    return pd.DataFrame(rows)


def corpus(tag: str = "") -> pd.DataFrame:
    texts = [f"__global__ void k{k}(float* y) {{ y[0] = {k}; }}  // é {tag}\n" for k in range(4)]
    return pd.DataFrame(
        {
            "text": texts,
            "package": f"pkg{tag}",
            "version": "1.0",
            "path": [f"src/k{k}.cu" for k in range(4)],
            "license": "MIT",
            "sha256": [digest(text) for text in texts],
            "n_bytes": [len(text.encode()) for text in texts],
            "sparse_score": 0,
        }
    )


SOURCE = """// format: csr index=i32
// launch: spmv grid=ceil_div(rows,128) block=128 shared=0
extern "C" __global__ void spmv(const float* x, float* y, int rows) { /* %s */ }
"""


def pairs(tag: str = "") -> pd.DataFrame:
    sources = [SOURCE % f"{k}{tag}" for k in range(3)]
    return pd.DataFrame(
        {
            "matrix": [f"g/a{tag}", f"g/a{tag}", f"h/b{tag}"],
            "split": ["train", "train", "validation"],
            "operator": "spmv",
            "width": 1,
            "dtype": "float32",
            "arch": "sm_90",
            "program_hash": [digest(source) for source in sources],
            "family": "csr_scalar",
            "parameters": "{}",
            "source": sources,
            "time_us": [2.0, 4.0, 5.0],
            "baseline_us": [4.0, 4.0, 6.0],
            "quality": [1.0, 0.5, 1.0],
            "timing": "modelled",
        }
    )


def measurements(tag: str = "") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "matrix": [f"g/a{tag}", f"g/a{tag}", f"h/b{tag}"],
            "operator": ["spmv", "spmv", "spmm"],
            "width": [1, 1, 8],
            "dtype": "float32",
            "arch": "sm_90",
            "gpu": None,
            "timing": ["modelled", None, "modelled"],
            "driver": None,
            "compiler": "nvrtc 13.5",
            "program_hash": [digest(f"{k}{tag}") for k in range(3)],
            "family": "csr_scalar",
            "parameters": "{}",
            "format": "csr index=i32",
            "status": ["correct", "wrong", "correct"],
            "time_us": [1.0, np.nan, 2.0],
            "baseline": ["ref", None, "ref"],
            "baseline_us": [2.0, np.nan, 3.0],
            "convert_us": [0.0, np.nan, 1.0],
            "bytes_moved": [100, np.nan, 200],
            "registers": [32, np.nan, 40],
            "spill_bytes": [0, np.nan, 0],
            "shared_bytes": [0, np.nan, 0],
        }
    )


GOOD = {"matrices": matrices, "corpus": corpus, "pairs": pairs, "measurements": measurements}

FIRST = object()  # the value that the first row of the table has in that column

# kind, column, row, bad value, beginning of the failing sentence
BAD_CELLS = [
    ("matrices", "matrix", 1, FIRST, "matrix is unique"),
    ("matrices", "matrix", 1, "m1", "matrix is group/name"),
    ("matrices", "name", 1, None, "name is not missing"),
    ("matrices", "sha256", 1, "abc", "sha256 is 64 lower-case hex digits"),
    ("matrices", "sha256", 1, digest("x").upper(), "sha256 is 64 lower-case hex digits"),
    ("matrices", "rows", 1, 0, "rows >= 1"),
    ("matrices", "rows", 1, 10.5, "rows is a whole number"),
    ("matrices", "rows", 1, "ten", "rows is a whole number"),
    ("matrices", "rows", 1, np.inf, "rows is a whole number"),
    ("matrices", "cols", 1, -4, "cols >= 1"),
    ("matrices", "cols", 1, 2**31, "cols >= 1 and cols <= 2147483647"),
    ("matrices", "nnz", 1, 0, "nnz >= 1"),
    ("matrices", "cols", 1, 3, "nnz <= rows * cols"),
    ("matrices", "nnz", 1, 41, "nnz <= 2 * nnz_stored when symmetric, <= nnz_stored when general"),
    ("matrices", "duplicates", 1, 41, "duplicates <= nnz_stored"),
    ("matrices", "explicit_zeros", 1, -1, "explicit_zeros >= 0"),
    ("matrices", "field", 1, "double", "field is one of"),
    ("matrices", "symmetry", 1, "upper", "symmetry is one of"),
    ("matrices", "structure_class", 1, "bandy", "structure_class is one of"),
    ("matrices", "split", 1, "valid", "split is one of"),
    ("matrices", "split", 1, "test", "no group in two splits"),
    ("matrices", "sha256", 2, FIRST, "no content (sha256) in two splits"),
    ("matrices", "log_nnz", 1, np.inf, "log_nnz is a finite number"),
    ("matrices", "log_nnz", 1, np.nan, "log_nnz is not missing"),
    ("corpus", "text", 1, "", "text has 1 to 204800 characters"),
    ("corpus", "text", 1, " \n\t", "text is not blank"),
    ("corpus", "text", 1, None, "text is not missing"),
    ("corpus", "text", 1, "x" * 204801, "text has 1 to 204800 characters"),
    ("corpus", "text", 1, "// under the GNU General Public License v3", "text carries no GPL notice"),
    ("corpus", "text", 1, "// SPDX-License-Identifier: LGPL-2.1", "text carries no GPL notice"),
    ("corpus", "text", 1, "a\x00b", "text holds no NUL"),
    ("corpus", "license", 1, "GPL-3.0-only", "license is one of"),
    ("corpus", "sha256", 1, digest("other"), "sha256 is the hash of text"),
    ("corpus", "n_bytes", 1, 5, "n_bytes is the length of text in UTF-8"),
    ("corpus", "sparse_score", 1, -1, "sparse_score >= 0"),
    ("corpus", "path", 1, FIRST, "package, path are unique together"),
    ("corpus", "path", 1, "../../etc/passwd", "path is relative and stays inside its package"),
    ("corpus", "path", 1, "/etc/passwd", "path is relative and stays inside its package"),
    ("pairs", "split", 1, "test", "split is one of train, validation"),
    ("pairs", "split", 1, "validation", "a matrix is in one split"),
    ("pairs", "operator", 1, "spgemm", "operator is one of"),
    ("pairs", "width", 1, 8, "width is 1 for spmv"),
    ("pairs", "dtype", 1, "fp32", "dtype is one of"),
    ("pairs", "arch", 1, "90", "arch is sm_XX"),
    ("pairs", "program_hash", 1, "abc", "program_hash is 64 lower-case hex digits"),
    ("pairs", "parameters", 1, "[1]", "parameters is a JSON object"),
    ("pairs", "parameters", 1, "{", "parameters is a JSON object"),
    ("pairs", "source", 1, "", "source has 1 to 16384 characters"),
    ("pairs", "source", 1, "int main() {}", "source begins with its `// format:` line"),
    ("pairs", "source", 1, SOURCE.replace("// launch:", "//"), "source has a `// launch:` line"),
    ("pairs", "source", 1, SOURCE.replace("__global__", ""), "source defines a kernel"),
    ("pairs", "time_us", 1, 0.0, "time_us > 0"),
    ("pairs", "time_us", 1, np.nan, "time_us is not missing"),
    ("pairs", "baseline_us", 1, -1.0, "baseline_us > 0"),
    ("pairs", "quality", 1, 0.0, "quality > 0 and quality <= 1"),
    ("pairs", "quality", 1, 1.2, "quality > 0 and quality <= 1"),
    ("pairs", "quality", 1, 0.9, "quality is the best time of the problem over this time"),
    ("pairs", "timing", 1, "guessed", "timing is one of"),
    ("measurements", "status", 1, "ok", "status is one of"),
    ("measurements", "status", 1, "correct", "time_us is there when the status is correct, and only then"),
    ("measurements", "time_us", 1, 3.0, "time_us is there when the status is correct, and only then"),
    ("measurements", "time_us", 0, -1.0, "time_us >= 0"),
    ("measurements", "timing", 0, "estimated", "timing is one of"),
    ("measurements", "timing", 0, None, "a correct row says its timing"),
    ("measurements", "timing", 1, "measured", "measured and modelled times are not mixed"),
    ("measurements", "timing", 1, "measured", "gpu is named when the timing is measured, and only then"),
    ("measurements", "gpu", 1, "H200", "gpu is named when the timing is measured, and only then"),
    ("measurements", "arch", 1, "sm_", "arch is sm_XX"),
    ("measurements", "width", 2, 0, "width >= 1"),
    ("measurements", "baseline_us", 0, 0.0, "baseline_us > 0"),
    ("measurements", "baseline", 0, None, "baseline and baseline_us come together"),
    ("measurements", "convert_us", 0, -0.5, "convert_us >= 0"),
    ("measurements", "bytes_moved", 0, -8, "bytes_moved >= 0"),
    ("measurements", "registers", 0, 256, "registers >= 0 and registers <= 255"),
    ("measurements", "spill_bytes", 0, -1, "spill_bytes >= 0"),
    ("measurements", "shared_bytes", 0, 1.5, "shared_bytes is a whole number"),
    ("measurements", "program_hash", 1, FIRST, "one row per matrix, operator, width, dtype, arch, gpu"),
]


@pytest.mark.parametrize("kind", GOOD)
def test_good_rows_pass(kind: typing.Any, capfd: pytest.CaptureFixture[str]) -> None:
    frame = GOOD[kind]()
    before = frame.copy()
    report = validate(kind, frame)
    assert report.success
    assert report.rows == len(frame)
    assert len(report.outcomes) > 20
    assert json.loads(json.dumps(report.to_dict()))["success"] is True
    pd.testing.assert_frame_equal(frame, before)
    assert capfd.readouterr() == ("", "")  # neither progress bars nor warnings


def bad_cells(kind: str, typed: bool) -> list[tuple[str, int, typing.Any, str]]:
    """The cases of one kind: those about presence and type, which end the check early, or those about values."""
    early = ("is not missing", "is text", "is a whole number", "is a finite number")
    return [case[1:] for case in BAD_CELLS if case[0] == kind and case[4].endswith(early) == typed]


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("kind", GOOD)
def test_bad_cells_are_named(kind: typing.Any, typed: bool) -> None:
    cases = bad_cells(kind, typed)
    assert cases
    blocks = []
    for number, (column, row, value, _) in enumerate(cases):
        block: typing.Any = GOOD[kind](f"-{number}").astype(object)
        block.loc[row, column] = block[column].iloc[0] if value is FIRST else value
        blocks.append(block)
    with pytest.raises(QualityError) as caught:
        validate(kind, pd.concat(blocks, ignore_index=True))
    failures = caught.value.report.failures
    found = {failure.says: failure for failure in failures}
    height = len(blocks[0])
    for number, (_, row, _, sentence) in enumerate(cases):
        failure = next(found[says] for says in found if says.startswith(sentence))
        assert number * height + row in failure.rows, (sentence, failure)
        assert failure.says in str(caught.value)
    for failure in failures:
        assert len(failure.examples) == min(failure.unexpected, 5)
        assert failure.unexpected <= len(blocks) * height / 2, failure
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", GOOD)
def test_missing_column_and_empty_table(kind: typing.Any) -> None:
    frame = GOOD[kind]()
    name = frame.columns[3]
    with pytest.raises(QualityError, match=f"column {name} is there"):
        validate(kind, frame.drop(columns=name))
    with pytest.raises(QualityError, match="the table has rows"):
        validate(kind, frame.iloc[:0])


def test_message_shows_five_rows_and_counts_the_rest() -> None:
    frame = pd.concat([matrices()] * 2, ignore_index=True)
    frame["matrix"] = [f"g/m{k}" for k in range(12)]
    frame["name"] = [f"m{k}" for k in range(12)]
    frame["group"] = "g"
    frame["split"] = "train"
    frame["nnz"] = 0
    with pytest.raises(QualityError) as caught:
        validate("matrices", frame)
    (failure,) = caught.value.report.failures
    assert failure.unexpected == 12
    assert failure.examples == tuple(f"g/m{k}: nnz=0" for k in range(5))
    assert 'nnz <= 2147483647" failed; rows: g/m0: nnz=0 | ' in str(caught.value)
    assert str(caught.value).endswith("g/m4: nnz=0 and 7 more")


def test_measured_table_passes() -> None:
    frame = measurements().assign(timing="measured", gpu="NVIDIA H200", driver="580.1")
    assert validate("measurements", frame).success


def test_table_without_one_correct_row_passes() -> None:
    frame = measurements().assign(
        status="wrong", timing=None, time_us=np.nan, baseline=None, baseline_us=np.nan, format=None
    )
    assert validate("measurements", frame).success


def test_index_of_the_frame_does_not_matter() -> None:
    frame = matrices()
    frame.index = pd.Index([7] * len(frame))
    assert validate("matrices", frame).success


def test_limits_come_from_the_caller() -> None:
    limits = Limits(licenses=("BSD-3-Clause",), max_file_bytes=1000)
    with pytest.raises(QualityError, match="license is one of BSD-3-Clause"):
        validate("corpus", corpus(), limits)


def test_unknown_kind_is_a_user_error() -> None:
    with pytest.raises(UserError, match="found 'plots'"):
        validate("plots", matrices())  # type: ignore[arg-type]
    assert issubclass(QualityError, UserError)


def test_ladder_and_timings_equal_the_judges() -> None:
    assert tuple(str(status) for status in Status) == tables.STATUSES
    assert typing.get_args(Timing) == tables.TIMINGS
