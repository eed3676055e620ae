"""The campaign's run: several matrices at once, each searched problem by problem, every batch on disk before the next.

A run that was killed is started again with the same folder: rows that are there are not judged again. What was being
judged when it died is; the judge's own cache answers for the part of it that had been timed.
"""

import dataclasses
import json
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.campaign.plan import Problem, programs_of, request_of
from components.campaign.rows import Session, Subject, matrix_row, problem_columns, pruned_row, verdict_row
from components.campaign.search import Phase, Row, Search, SearchSettings
from components.campaign.sets import Source
from components.campaign.shards import Folder, read_table
from components.campaign.sizes import Sizes
from components.errors import SparseRLError, UserError
from components.kernel.families import RenderedProgram
from components.matrix.features import structure_features

MEASUREMENTS, SOURCES, MATRICES, PROBLEMS, SESSIONS = "measurements", "sources", "matrices", "problems", "sessions"
Key = tuple[str, str]  # matrix, problem
_BATCH_PRODUCTS = 200_000_000  # non-zeros times dense columns of a batch's programs: it ends within a minute or so
_LEAST_BATCH = 4


class Stopped(Exception):
    """The budget is spent, or the process was asked to end: no further batch begins."""


@dataclass
class Tally:
    """What a run did."""

    judged: int = 0
    pruned: int = 0
    finals: int = 0
    done: int = 0  # problems
    before: int = 0  # problems that an earlier run had done
    refused: int = 0  # problems that cannot be asked, as a dense operand too large for the machine
    failed: list[str] = field(default_factory=list)


class Campaign:
    """One run over a set of matrices.

    Args:
        judge: components.campaign.remeasure.RemeasuringJudge, or a test's.
        folder: where everything is written.
        session: this run.
        problems: on every matrix.
        settings: of the search.
        families: only these; all when empty.
        deadline: on the monotonic clock; no batch begins after it.
        say: told of each problem that is done.
    """

    def __init__(
        self,
        judge: Any,
        folder: Folder,
        session: Session,
        problems: Sequence[Problem],
        settings: SearchSettings,
        families: Sequence[str] = (),
        deadline: float = float("inf"),
        say: Callable[[str], None] = lambda line: None,
    ):
        self.judge, self.folder, self.session = judge, folder, session
        self.problems, self.settings, self.families = problems, settings, families
        self.tally = Tally()
        self.stop = threading.Event()
        self._deadline, self._say = deadline, say
        self._lock = threading.Lock()
        self._known, self._done = _earlier(folder.path, session)
        self._sources = {line.row["program_hash"] for line in read_table(folder.path, SOURCES)}
        self._matrices = {line.row["matrix"] for line in read_table(folder.path, MATRICES)}
        self._gpu_seconds = judge.gpu_seconds() or 0.0

    def run(self, sources: Sequence[Source], window: int) -> Tally:
        """Work through the matrices, `window` of them at a time, until they or the time are at an end."""
        waiting = iter(sources)

        def work() -> None:
            while not self._ended() and (source := self._next(waiting)) is not None:
                try:
                    self._matrix(source)
                except Stopped:
                    return
                except SparseRLError as error:
                    self._failed(source.name, str(error))
                except Exception:
                    self.stop.set()  # a fault of the campaign itself: the others end their batch, then it is raised
                    raise

        with ThreadPoolExecutor(window, thread_name_prefix="campaign") as threads:
            running = [threads.submit(work) for _ in range(window)]
        for future in running:
            future.result()
        return self.tally

    def _next(self, waiting: Iterator[Source]) -> Source | None:
        with self._lock:
            return next(waiting, None)

    def _ended(self) -> bool:
        return self.stop.is_set() or time.monotonic() >= self._deadline

    def _failed(self, what: str, why: str) -> None:
        with self._lock:
            self.tally.failed.append(f"{what}: {why}")
        self._say(f"failed: {what}: {why}")

    # -- one matrix ------------------------------------------------------------------------------------------------

    def _matrix(self, source: Source) -> None:
        if not self._wanted(source.name):
            self._skip(len(self.problems))
            return
        matrix = source.load()
        wanted = self._wanted(matrix.id)  # a file without a group says its name only now
        self._skip(len(self.problems) - len(wanted))
        if not wanted:
            return
        features = structure_features(matrix)
        subject = Subject(matrix, features, Sizes(matrix, features))
        with self._lock:
            new = matrix.id not in self._matrices
            self._matrices.add(matrix.id)
        if new:
            self.folder.append(MATRICES, [matrix_row(subject)])
        for problem in wanted:
            try:
                self._problem(subject, problem)
            except UserError as error:  # the judge's: this cannot be asked on this machine
                nothing = dict.fromkeys(("applicable", "judged", "pruned", "finals", "seconds"))
                self._close(subject, problem, {"outcome": "refused", "message": str(error)[:240], **nothing})
                with self._lock:
                    self.tally.refused += 1

    def _wanted(self, matrix: str) -> list[Problem]:
        return [problem for problem in self.problems if (matrix, str(problem)) not in self._done]

    def _skip(self, count: int) -> None:
        with self._lock:
            self.tally.before += count

    def _problem(self, subject: Subject, problem: Problem) -> None:
        if self._ended():
            raise Stopped
        started = time.monotonic()
        programs = programs_of(problem, subject.matrix, subject.features, self.families)

        def floor_us(digest: str) -> float | None:
            moved = subject.sizes.least_moved(programs[digest], problem)
            return None if moved is None else self.session.machine.floor_us(moved)

        def prune(digest: str, number: int) -> Row:
            floor = floor_us(digest)
            assert floor is not None
            row = pruned_row(subject, problem, self.session, digest, programs[digest], floor, number)
            self._write(programs, [row])
            with self._lock:
                self.tally.pruned += 1
            return row

        known = self._known.get((subject.matrix.id, str(problem)), [])
        for row in known:
            if row["bytes_stored"] is not None:
                subject.sizes.learn(row["format"], problem.precision, row["bytes_stored"])
        search = Search(
            programs,
            subject.features,
            problem.width,
            dataclasses.replace(self.settings, batch=self._batch(subject, problem)),
            lambda digests, phase, number: self._measure(subject, problem, programs, digests, phase, number),
            prune,
            floor_us,
            known,
        )
        search.run()
        finals = [row for rows in search.finals.values() for row in rows if row["status"] == "correct"]
        best = max((row["speedup"] or 0.0 for row in finals), default=0.0)
        seconds = time.monotonic() - started
        outcome = {
            "outcome": "done",
            "message": None,
            "applicable": len(programs),
            "judged": search.judged,
            "pruned": len(search.rows) - search.judged,
            "finals": sum(len(rows) for rows in search.finals.values()),
            "seconds": round(seconds, 3),
        }
        self._close(subject, problem, outcome)
        with self._lock:
            self.tally.done += 1
        self._say(f"{subject.matrix.id} {problem}: {best:.2f}x, {search.judged} judged in {seconds:.1f} s")

    def _batch(self, subject: Subject, problem: Problem) -> int:
        """Programs of a batch: fewer on a large matrix, so that the budget's end or a crash costs little."""
        fitting = _BATCH_PRODUCTS // max(1, subject.matrix.nnz * problem.width)
        return min(self.settings.batch, max(_LEAST_BATCH, fitting))

    def _close(self, subject: Subject, problem: Problem, outcome: dict[str, Any]) -> None:
        row = {**problem_columns(subject, problem, self.session), **outcome, "session": self.session.name}
        self.folder.append(PROBLEMS, [row])

    def _measure(
        self,
        subject: Subject,
        problem: Problem,
        programs: dict[str, RenderedProgram],
        digests: Sequence[str],
        phase: Phase,
        number: int,
    ) -> list[Row]:
        """Judge one batch and write its rows."""
        if self._ended():
            raise Stopped
        started = time.monotonic()
        requests = [request_of(problem, programs[digest], subject.matrix) for digest in digests]
        ask = self.judge.judge_many if phase == "search" else self.judge.measure_again
        verdicts = ask(requests)
        seconds = (time.monotonic() - started) / len(digests)
        gpu_seconds = self._gpu_share(len(digests))
        rows = [
            verdict_row(
                subject, problem, self.session, digest, programs[digest], verdict, phase, number, seconds, gpu_seconds
            )
            for digest, verdict in zip(digests, verdicts, strict=True)
        ]
        self._write(programs, rows)
        with self._lock:
            if phase == "search":
                self.tally.judged += len(rows)
            else:
                self.tally.finals += len(rows)
        return rows

    def _gpu_share(self, count: int) -> float | None:
        """What the executor worked since the last batch of any problem, per program: the sum over all rows is exact."""
        total = self.judge.gpu_seconds()
        if total is None:
            return None
        with self._lock:
            share = (total - self._gpu_seconds) / count
            self._gpu_seconds = total
        return float(share)

    def _write(self, programs: dict[str, RenderedProgram], rows: Sequence[Row]) -> None:
        with self._lock:
            new = [row["program_hash"] for row in rows if row["program_hash"] not in self._sources]
            self._sources.update(new)
        self.folder.append(SOURCES, [_source_row(digest, programs[digest]) for digest in new])
        self.folder.append(MEASUREMENTS, rows)


def _source_row(digest: str, program: RenderedProgram) -> dict[str, Any]:
    return {
        "program_hash": digest,
        "family": program.family,
        "parameters": json.dumps(dict(program.parameters)),
        "source": program.source,
    }


def _earlier(folder: Path, session: Session) -> tuple[dict[Key, list[Row]], set[Key]]:
    """Rows by problem, and the problems that are done, of earlier runs on the same kind of machine."""

    def here(row: Row) -> bool:
        return (row["arch"], row["gpu"]) == (session.arch, session.gpu)

    def key(row: Row) -> Key:
        return row["matrix"], str(Problem(row["operator"], row["width"], row["dtype"]))

    known: dict[Key, list[Row]] = {}
    done = {key(line.row) for line in read_table(folder, PROBLEMS) if here(line.row)}
    for line in read_table(folder, MEASUREMENTS):
        if here(line.row) and (of := key(line.row)) not in done:
            known.setdefault(of, []).append(line.row)
    return known, done


def start_session(judge: Any, command: Sequence[str], facts: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
    """This run's session and its row."""
    now = datetime.now(UTC)
    name = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    device, machine = judge.gpu, judge.machine
    session = Session(name, judge.arch, device.get("gpu"), device.get("driver"), machine)
    row = {
        "session": name,
        "started": now.isoformat(timespec="seconds"),
        "command": " ".join(command),
        "arch": judge.arch,
        "gpu": session.gpu,
        "driver": session.driver,
        "compiler": judge.compiler,
        **dataclasses.asdict(machine),
        **facts,
    }
    return session, row


def stop_on_signals(campaign: Campaign) -> None:
    """SIGTERM and SIGINT end the run after the batches under way."""

    def ask(number: int, frame: object) -> None:
        campaign.stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
