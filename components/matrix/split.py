"""Train, validation and test by group: a group never falls into two parts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

PARTS = ("train", "validation", "test")
_TRIES = 64
_ABSENT = 2.0  # what a class missing from a part weighs, in units of a part that is short of its whole share


@dataclass(frozen=True)
class SplitRow:
    """What the split needs to know of a matrix."""

    matrix: str  # group/name
    group: str
    structure_class: str


def split_by_group(rows: Sequence[SplitRow], fractions: Mapping[str, float], seed: int) -> dict[str, str]:
    """Assign every matrix to train, validation or test.

    Whole groups are dealt, largest first, each to the part that is furthest below its share of the group's classes;
    of 64 seeded deals the one closest to the fractions, overall and per class, is kept. The order of `rows` does not
    matter. A class that occurs in three groups or more gets into every part wherever the deal allows it.

    Args:
        rows: one per matrix, ids distinct.
        fractions: positive shares of the three parts, summing to 1.
        seed: of the deals.

    Returns:
        {matrix id: part}
    """
    members: dict[str, Counter[str]] = {}
    for row in rows:
        members.setdefault(row.group, Counter())[row.structure_class] += 1
    totals = sum(members.values(), Counter())
    homes = Counter(name for counts in members.values() for name in counts)
    best: tuple[float, dict[str, str]] = (np.inf, {})
    for attempt in range(_TRIES if len(members) > 1 else 1):
        rng = np.random.default_rng([seed, attempt])
        deal = _deal(members, totals, homes, fractions, rng)
        if (cost := _cost(deal, members, totals, homes, fractions)) < best[0]:
            best = cost, deal
    return {row.matrix: best[1][row.group] for row in rows}


def _deal(
    members: Mapping[str, Counter[str]],
    totals: Counter[str],
    homes: Counter[str],
    fractions: Mapping[str, float],
    rng: np.random.Generator,
) -> dict[str, str]:
    names = sorted(members)
    noise = dict(zip(names, rng.uniform(0.5, 2.0, len(names)), strict=True))
    names.sort(key=lambda name: -members[name].total() * noise[name])
    dealt: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    deal = {}
    for name in names:
        classes = members[name]

        def gap(part: str, classes: Counter[str] = classes) -> float:
            """Entries short of the part's share after this group; per class and overall, relative to the share."""
            share = fractions[part]
            short = sum(n * (1 - (dealt[part][c] + n) / (share * totals[c])) for c, n in classes.items())
            short += sum(_ABSENT * n for c, n in classes.items() if not dealt[part][c] and homes[c] >= len(PARTS))
            return float(short / classes.total() + 1 - (dealt[part].total() + classes.total()) / share / totals.total())

        deal[name] = max(PARTS, key=gap)
        dealt[deal[name]] += classes
    return deal


def _cost(
    deal: Mapping[str, str],
    members: Mapping[str, Counter[str]],
    totals: Counter[str],
    homes: Counter[str],
    fractions: Mapping[str, float],
) -> float:
    counts: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    for group, part in deal.items():
        counts[part] += members[group]
    cost = 0.0
    for part in PARTS:
        share = fractions[part]
        cost += 4 * abs(counts[part].total() / totals.total() - share) / share
        cost += 100 * (not counts[part] and len(members) >= len(PARTS))
        for name, total in totals.items():
            cost += abs(counts[part][name] / total - share) / share * total / totals.total()
            cost += _ABSENT * (not counts[part][name] and homes[name] >= len(PARTS))
    return cost
