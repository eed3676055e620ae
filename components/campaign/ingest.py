"""Shards to validated parquet: `kernels.parquet` and, beside it, sources, matrices, problems and sessions."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.campaign.run import MATRICES, MEASUREMENTS, PROBLEMS, SESSIONS, SOURCES
from components.campaign.shards import read_table, shards_of
from components.campaign.table import (
    COLUMNS,
    MEASUREMENT,
    PLACE,
    PROBLEM,
    check,
    matrices_suite,
    measurements_suite,
    problems_suite,
    sources_suite,
)
from components.errors import UserError
from components.files import replacing
from components.quality.rules import Suite

if TYPE_CHECKING:
    import pandas as pd

_SIDES: dict[str, tuple[tuple[str, ...], Suite | None]] = {  # what names a row of each side table; what it satisfies
    SOURCES: (("program_hash",), sources_suite()),
    MATRICES: (("matrix",), matrices_suite()),
    PROBLEMS: (PROBLEM, problems_suite()),
    SESSIONS: (("session",), None),  # told as they were, for the record
}


def ingest(folders: Sequence[Path], out: Path) -> dict[str, Any]:
    """Validate the shards of one or several campaigns and write them as compact parquet.

    A row that occurs twice, as when two folders hold copies, is taken once, the first.

    Args:
        folders: of `components.campaign run`.
        out: NAME.parquet; the side tables become NAME-sources.parquet and so on.

    Returns:
        Counts of what was written, by table.

    Raises:
        UserError: a folder without rows, a damaged shard, or rows that break the suite, named by shard and line.
    """
    for folder in folders:
        if not shards_of(folder, MEASUREMENTS):
            raise UserError(f"{folder}: no {MEASUREMENTS}-00000.jsonl.gz, expected the folder of a campaign")
    sides = {name: _side(folders, name, *how) for name, how in _SIDES.items()}
    frame = _frame(folders, MEASUREMENTS)
    frame["has_source"] = frame["program_hash"].isin(sides[SOURCES]["program_hash"])
    frame["has_features"] = frame["matrix"].isin(sides[MATRICES]["matrix"])
    check(MEASUREMENTS, frame, measurements_suite())
    whole = len(frame)
    frame = frame.drop_duplicates(list(MEASUREMENT)).sort_values(list(MEASUREMENT), kind="stable")
    tables = {"": compact(frame), **{f"-{name}": side for name, side in sides.items()}}
    for suffix, table in tables.items():
        with replacing(side_path(out, suffix)) as temporary:
            table.to_parquet(temporary, index=False, compression="zstd", compression_level=12)
    return {
        "rows": len(frame),
        "repeated": whole - len(frame),
        **{name: len(side) for name, side in sides.items()},
        "bytes": sum(side_path(out, suffix).stat().st_size for suffix in tables),
    }


def side_path(out: Path, suffix: str) -> Path:
    """NAME.parquet to NAME-sources.parquet."""
    return out.with_name(f"{out.stem}{suffix}{out.suffix}")


def compact(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The measurements' columns in the smallest types that hold them: float32 has seven digits, a clock fewer."""
    kinds = {"text": "category", "integer": "Int64", "real": "float32", "flag": "boolean"}
    table = frame[list(COLUMNS)].astype({name: kinds[kind] for name, kind in COLUMNS.items()})
    return table.reset_index(drop=True)


def _side(folders: Sequence[Path], name: str, keys: tuple[str, ...], suite: Suite | None) -> "pd.DataFrame":
    frame = _frame(folders, name).drop_duplicates(list(keys)).reset_index(drop=True)
    if suite is not None:
        check(name, frame, suite)
    return frame.drop(columns=PLACE)


def _frame(folders: Sequence[Path], name: str) -> "pd.DataFrame":
    """All rows of a table, each with its place."""
    import pandas as pd

    lines = [line for folder in folders for line in read_table(folder, name)]
    if not lines:
        raise UserError(f"{folders[0]}: no {name}-00000.jsonl.gz, expected it beside {MEASUREMENTS}")
    frame = pd.DataFrame([line.row for line in lines])
    depth = 1 if len(folders) == 1 else 2  # parts of a path that tell shards apart; messages have little room
    frame[PLACE] = [f"{'/'.join(line.shard.parts[-depth:])} line {line.number}" for line in lines]
    return frame
