"""Measured pairs with their counters, and how well the modelled time orders and meets them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from components.judge.model_constants import CALIBRATED, Constants
from components.judge.model_time import CHAIN, LaunchShape, Work, architecture, launch_us, work_of

SHAPE = tuple(field.name for field in fields(LaunchShape))
COUNTS = (
    "warp_instructions", "load_requests", "store_requests", "atomic_requests", "wavefronts", "shared_wavefronts",
    "load_sectors", "l1_missed_sectors", "store_sectors", "atomic_sectors", "atomic_lanes", "cold_sectors",
    "cold_streamed", "missed_streamed",
    "sm_instructions", "sm_lines", "sm_sectors", "sm_blocks",
)  # fmt: skip
COLUMNS = (*SHAPE, *COUNTS, *(f"longest.{name}" for name in CHAIN), *(f"blocks_sum.{name}" for name in CHAIN))
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """Measured (program, matrix) pairs; arrays of length pairs but for the launches'."""

    program: NDArray[np.str_]
    matrix: NDArray[np.str_]
    group: NDArray[np.str_]  # matrix, operator and width: whose programs compete
    family: NDArray[np.str_]
    time_us: Floats  # measured, L2 warm
    work: Work  # arrays over launches
    pair: NDArray[np.int64]  # of each launch
    first: Bools  # whether the launch is its program's first

    def modelled(self, k: Constants = CALIBRATED) -> Floats:
        """Modelled time of every pair, microseconds."""
        times = launch_us(architecture("sm_90"), self.work, self.first, k)
        found: Floats = np.bincount(self.pair, times, len(self.program)).astype(np.float64)
        return found


def join(counters: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """The table of pairs that both files have with the same compiled code; plain JSON types.

    Args:
        counters: what `model_fit.py collect` wrote.
        measured: what `model_fit.py measure` wrote.
    """
    key = ("program", "matrix", "operator", "width")
    times = {tuple(row[name] for name in key): row for row in measured["rows"] if row["status"] == "correct"}
    pairs: list[list[Any]] = []
    launches: list[list[int]] = []
    other_code = 0
    for row in counters["rows"]:
        found = times.get(tuple(row[name] for name in key))
        if found is None or found["time_us"] is None or found.get("reliable") is False:
            continue
        if found["code_hash"] != row["code_hash"]:
            other_code += 1
            continue
        for launch in row["launches"]:
            counts = launch["counts"]
            numbers = [launch["shape"][name] for name in SHAPE] + [counts[name] for name in COUNTS]
            numbers += [counts[chain][name] for chain in ("longest", "blocks_sum") for name in CHAIN]
            launches.append([len(pairs), *numbers])
        pairs.append([*(row[name] for name in key), row["family"], float(f"{found['time_us']:.5g}")])
    if other_code:
        print(f"{other_code} pairs left out: compiled by another NVRTC")
    return {
        "pairs_columns": [*key, "family", "time_us"],
        "launches_columns": ["pair", *COLUMNS],
        "pairs": pairs,
        "launches": launches,
    }


def read_pairs(table: Mapping[str, Any]) -> Pairs:
    """The pairs of a table that `join` made."""
    if table["launches_columns"] != ["pair", *COLUMNS]:
        raise ValueError("the table of pairs was made by another version: collect and join again")
    machine = architecture("sm_90")
    works = []
    for row in table["launches"]:
        named = dict(zip(COLUMNS, row[1:], strict=True))
        shape = LaunchShape(**{name: named[name] for name in SHAPE})
        chains = {
            side: SimpleNamespace(**{name: named[f"{side}.{name}"] for name in CHAIN})
            for side in ("longest", "blocks_sum")
        }
        counts: Any = SimpleNamespace(**{name: named[name] for name in COUNTS}, **chains)
        works.append(work_of(machine, counts, shape))
    columns = {f.name: np.array([getattr(w, f.name) for w in works], np.float64).T for f in fields(Work)}
    pair = np.array([row[0] for row in table["launches"]], np.int64)
    program, matrix, operator, width, family, time_us = zip(*table["pairs"], strict=True)
    return Pairs(
        program=np.array(program),
        matrix=np.array(matrix),
        group=np.array([" ".join(map(str, names)) for names in zip(matrix, operator, width, strict=True)]),
        family=np.array(family),
        time_us=np.array(time_us, np.float64),
        work=Work(**columns),
        pair=pair,
        first=np.concatenate([[True], pair[1:] != pair[:-1]]),
    )


def load_table(path: Path) -> Any:
    """A table of pairs from its file."""
    return json.loads(path.read_text(encoding="utf-8"))


def figures(pairs: Pairs, modelled: Floats, chosen: Bools) -> dict[str, float | int | None]:
    """How well modelled times order and meet measured ones, over the pairs chosen.

    Returns:
        `kendall_tau`: over two programs of a group, mean of +1 (same order) and -1, averaged over groups;
        `kendall_tau_b`: likewise with ties taken off; `ordered_1_05x`, `ordered_1_5x`: share of two programs whose
        measured times are so far apart that the model orders right; `regret`: measured time of the program that the
        model likes best over the fastest's, minus 1, mean over groups; `median_error`: median of |log ratio| as a
        ratio minus 1; `bias`: median of modelled over measured.
    """
    taus, taus_b, regrets = [], [], []
    apart = {1.05: [0, 0], 1.5: [0, 0]}
    for name in np.unique(pairs.group[chosen]):
        here = np.flatnonzero(chosen & (pairs.group == name))
        if len(here) < 2:
            continue
        real, model = np.log(pairs.time_us[here]), np.log(modelled[here])
        upper = np.triu_indices(len(here), 1)
        gaps, guesses = (real[:, None] - real)[upper], (model[:, None] - model)[upper]
        same = np.sign(gaps) * np.sign(guesses)
        taus.append(float(same.mean()))
        both = float(kendalltau(real, model).statistic)
        if not np.isnan(both):
            taus_b.append(both)
        for factor, counts in apart.items():
            far = np.abs(gaps) >= np.log(factor)
            counts[0] += int((same[far] > 0).sum())
            counts[1] += int(far.sum())
        regrets.append(float(pairs.time_us[here][np.argmin(model)] / pairs.time_us[here].min() - 1))
    ratios = np.log(modelled / pairs.time_us)[chosen]
    return {
        "pairs": int(chosen.sum()),
        "groups": len(taus),
        "kendall_tau": _mean(taus),
        "kendall_tau_b": _mean(taus_b),
        "ordered_1_05x": _share(apart[1.05]),
        "ordered_1_5x": _share(apart[1.5]),
        "apart_1_5x": apart[1.5][1],
        "regret": _mean(regrets),
        "median_error": float(np.exp(np.median(np.abs(ratios))) - 1),
        "p90_error": float(np.exp(np.percentile(np.abs(ratios), 90)) - 1),
        "bias": float(np.exp(np.median(ratios))),
    }


def by_family(pairs: Pairs, modelled: Floats, chosen: Bools) -> dict[str, dict[str, float | int | None]]:
    """`figures` of each family's pairs among themselves."""
    return {
        str(name): figures(pairs, modelled, chosen & (pairs.family == name)) for name in np.unique(pairs.family[chosen])
    }


def held_out_matrices(pairs: Pairs) -> list[str]:
    """Every second matrix, in order of the median measured time: both halves span all sizes."""
    names = sorted({str(name) for name in pairs.matrix})
    medians = {name: float(np.median(pairs.time_us[pairs.matrix == name])) for name in names}
    return sorted(sorted(names, key=lambda name: (medians[name], name))[1::2])


def _mean(numbers: Sequence[float]) -> float | None:
    return float(np.mean(numbers)) if numbers else None


def _share(counts: Sequence[int]) -> float | None:
    return counts[0] / counts[1] if counts[1] else None
