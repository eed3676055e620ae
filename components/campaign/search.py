"""The search for one problem on one matrix: representatives, coordinate descent, and a fresh duel of the winners.

Deterministic given the outcomes, so that a campaign that goes on after a crash proposes the same programs again and
finds those that were judged before among its rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from components.campaign.plan import neighbours, representatives
from components.kernel.families import RenderedProgram
from components.matrix.features import StructureFeatures

Row = dict[str, Any]
Phase = Literal["search", "final"]
PRUNED = "pruned"  # a row's status that is no verdict


@dataclass(frozen=True)
class SearchSettings:
    """How far the search goes."""

    representatives: int = 3  # programs of each family to begin with, spread over its parameters
    spread_within: float = 3.0  # the first alone of a family whose first is slower than the best by more
    rounds: int = 4  # of coordinate descent, after the two of representatives
    beam: int = 3  # families whose best program is varied
    beam_within: float = 1.5  # and only within this factor of the best
    per_problem: int = 0  # programs judged at most; 0: no limit
    batch: int = 32  # programs judged together, at most
    prune_factor: float = 3.0  # a program that must be so much slower than the best is not judged; at least 1
    finals: int = 3  # fastest programs that are measured again, with the best of every family
    final_rounds: int = 3  # measurements of one that is not reliable, at most


class Search:
    """One problem on one matrix.

    Args:
        programs: that apply, by hash.
        features: of the matrix.
        width: dense columns.
        settings: how far to go.
        measure: judges programs and answers with their rows, in order, which are safe by then; it raises what it likes
            to end the search.
        prune: told of a program that is not judged, and the round; returns its row.
        floor_us: the time that a program cannot be under; None when it is not known.
        known: rows of an earlier run.
    """

    def __init__(
        self,
        programs: dict[str, RenderedProgram],
        features: StructureFeatures,
        width: int,
        settings: SearchSettings,
        measure: Callable[[Sequence[str], Phase, int], Sequence[Row]],
        prune: Callable[[str, int], Row],
        floor_us: Callable[[str], float | None],
        known: Sequence[Row] = (),
    ):
        self.programs, self.features, self.width, self.settings = programs, features, width, settings
        self._measure, self._prune, self._floor_us = measure, prune, floor_us
        self.rows: dict[str, Row] = {}
        self.finals: dict[str, list[Row]] = {}
        self._known = {row["program_hash"]: row for row in known if row["phase"] == "search"}
        for row in known:
            if row["phase"] == "final":
                self.finals.setdefault(row["program_hash"], []).append(row)

    @property
    def judged(self) -> int:
        """Programs that the search had judged."""
        return sum(row["status"] != PRUNED for row in self.rows.values())

    def run(self) -> None:
        """Search, then measure the winners again."""
        layers = representatives(self.programs, self.features, self.width, self.settings.representatives)
        proposed = layers[0]
        for number in range(self.settings.rounds + 2):
            new = [digest for digest in dict.fromkeys(proposed) if digest not in self.rows]
            if self.settings.per_problem:
                new = new[: max(0, self.settings.per_problem - self.judged)]
            if not new and number != 1:
                break
            self._advance(new, number)
            if number == 0:
                near = {self.programs[digest].family for digest in self._leaders(self.settings.spread_within)}
                proposed = [d for layer in layers[1:] for d in layer if self.programs[d].family in near]
            else:
                leaders = self._leaders(self.settings.beam_within)[: self.settings.beam]
                proposed = [other for digest in leaders for other in neighbours(self.programs, digest)]
        self.rows = {**self._known, **self.rows}  # what an earlier run with other settings judged counts too
        self._finish()

    def _advance(self, new: Sequence[str], number: int) -> None:
        """Judge or prune programs; those of an earlier run cost nothing."""
        for start in range(0, len(new), self.settings.batch):
            part = []
            limit = self.best_us() * self.settings.prune_factor
            for digest in new[start : start + self.settings.batch]:
                if digest in self._known:
                    self.rows[digest] = self._known[digest]
                elif math.isfinite(limit) and (self._floor_us(digest) or 0.0) > limit:
                    self.rows[digest] = self._prune(digest, number)
                else:
                    part.append(digest)
            if part:
                self.rows |= zip(part, self._measure(part, "search", number), strict=True)

    def best_us(self) -> float:
        """Time of the fastest program so far; infinite without one."""
        return min((row["time_us"] for row in self.rows.values() if timed(row)), default=math.inf)

    def ranking(self) -> list[str]:
        """Correct programs, fastest first; of equal code the first."""
        ordered = sorted((row["time_us"], digest) for digest, row in self.rows.items() if timed(row))
        seen: dict[tuple[Any, ...], str] = {}
        for _, digest in ordered:
            if digest in self.programs:
                seen.setdefault(self.code_of(digest), digest)
        return list(seen.values())

    def code_of(self, digest: str) -> tuple[Any, ...]:
        """What makes two programs one: the machine code and the contract (format and launches)."""
        return self.rows[digest]["code_hash"], contract_of(self.programs[digest].source)

    def _leaders(self, factor: float) -> list[str]:
        """The fastest program of every family that is within a factor of the best, fastest first."""
        limit = self.best_us() * factor
        return [d for d in best_of_families(self.ranking(), self.rows) if self.rows[d]["time_us"] <= limit]

    def _finish(self) -> None:
        """Measure the fastest programs, and the best of every family, again; the unreliable ones once more."""
        ranked = self.ranking()
        chosen = list(dict.fromkeys([*ranked[: self.settings.finals], *best_of_families(ranked, self.rows)]))
        for number in range(self.settings.final_rounds):
            wanting = [d for d in chosen if len(self.finals.get(d, ())) <= number and not self._settled(d)]
            for start in range(0, len(wanting), self.settings.batch):
                part = wanting[start : start + self.settings.batch]
                for digest, row in zip(part, self._measure(part, "final", number), strict=True):
                    self.finals.setdefault(digest, []).append(row)

    def _settled(self, digest: str) -> bool:
        """Whether a final measurement may be quoted, or says that the program fails."""
        return any(row["reliable"] is not False for row in self.finals.get(digest, ()))


def timed(row: Mapping[str, Any]) -> bool:
    """Whether a row holds a time that counts; one under the physical floor or in noise ranks, it is never quoted."""
    return row["status"] == "correct" and row["time_us"] is not None


def contract_of(source: str) -> str:
    """The contract lines of a program of the library."""
    return "\n".join(line for line in source.split("\n") if line.startswith(("// format:", "// launch:")))


def best_of_families(ranked: Sequence[str], rows: Mapping[str, Row]) -> list[str]:
    """The fastest program of each family, in the order of their times."""
    found: dict[str, str] = {}
    for digest in ranked:
        found.setdefault(rows[digest]["family"], digest)
    return list(found.values())
