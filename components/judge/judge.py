"""The judge: one request in, one verdict out; many requests at once, each in a process that may be killed."""

import contextlib
import functools
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Self

from components.errors import SparseRLError, UserError
from components.files import sha256_text
from components.judge.cache import Cache, code_version, content_key, default_folder
from components.judge.compile import OPTIONS, check_architecture, compiler_version
from components.judge.handover import Handover
from components.judge.model_time import architecture
from components.judge.options import Backend, resolve_backend
from components.judge.pool import Pool, WorkerBug, WorkerDied
from components.judge.request import JudgeRequest, check_request
from components.judge.verdict import Verdict
from components.judge.verify import pattern_key
from components.kernel.operators import OPERATORS
from components.kernel.precision import get_precision
from components.matrix.types import SparseMatrix
from components.settings import JudgeSettings

__all__ = ["Judge", "JudgeRequest", "resolve_backend"]

_LOG = logging.getLogger(__name__)
# What it means when a worker dies at a stage, unless it ran out of time.
_COMPILE_DEATHS = {"parse": "contract", "compile": "compile_error"}
_CHECK_DEATHS = {"check": "unsupported"}  # the interpreter failed on it: never a pass
BASELINE = "reference:csr_vector"  # of a modelled time; a measured one is compared with cuSPARSE
_START_S = 30.0  # from handing a worker its request to its first word
_SLACK = 4.0  # wall over CPU seconds: cores are shared
# One run of a program on a GPU: a thousand times what a slow honest one takes.
_DEADLINE_S, _DEADLINE_PER_ENTRY_S = 1.0, 1e-7
_SPARED_CORES = 2  # beside a GPU: for its executor and for this process


class Judge:
    """Judges programs for one architecture. Thread-safe; use as a context manager.

    Args:
        settings: limits; `judge_defaults()` without a settings file.
        arch: `sm_XX`; with the emulator one whose time is modelled, with the GPU its own.
        backend: `emulator` or `gpu`; see `resolve_backend`.
        workers: worker processes; 0: one per core.

    Raises:
        UserError: NVRTC is missing, or does not know `arch`, or no time is modelled for it.
    """

    def __init__(self, settings: JudgeSettings, arch: str, backend: Backend = "emulator", workers: int | None = None):
        check_architecture(arch)
        if backend == "emulator":
            architecture(arch)
        self.settings, self.arch, self.backend = settings, arch, backend
        cores = len(os.sched_getaffinity(0))
        self.workers = workers or settings.workers or max(1, cores - (_SPARED_CORES if backend == "gpu" else 0))
        self.compiler = compiler_version()
        self.cache = Cache(default_folder() if settings.cache else None, settings.cache_max_mb << 20)
        self._pool = Pool("components.judge.worker", self.workers)
        self._handover = Handover(self._pool.folder)
        # With a GPU many threads wait for their turn on it, while others keep the compilers busy.
        threads = 4 * self.workers + 8 if backend == "gpu" else self.workers + 2
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="judge")
        self._running: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        self._memory: OrderedDict[str, dict[str, Any]] = OrderedDict()  # compiled and gated programs of this session
        self._baselines: dict[str, float] = {}  # modelled, by key of the reference's request
        self._passed_on_gpu: set[str] = set()
        self._gpu: Any = None
        if backend == "gpu":
            from components.judge.gpu import GpuExecutor

            self._gpu = GpuExecutor(spares=0 if self.workers == 1 else 2)  # one program at a time needs no spare
        # Parts of keys: what compiling depends on besides the program, then checking, then running on this machine.
        self._compiling = content_key(self.arch, OPTIONS, self.compiler, code_version(), self.backend)
        self._checking = content_key(self._compiling, self._limits(), settings.wall_s)
        self._running_here = content_key(self._checking, self._gpu.identity if self._gpu is not None else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers. Requests that are still running are lost."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._gpu is not None:
            self._gpu.close()
        self._pool.close()
        self._threads.shutdown(wait=True)
        self.cache.close()

    @property
    def restarts(self) -> int:
        """Workers lost so far."""
        return self._pool.restarts + (self._gpu.restarts if self._gpu is not None else 0)

    def cpu_seconds(self) -> float:
        """CPU time that the workers at rest have used."""
        return self._pool.cpu_seconds()

    def judge(self, request: JudgeRequest) -> Verdict:
        """Judge one program; a program that is bad in whatever way is a verdict, never an exception.

        Raises:
            UserError: the operator or the width makes no sense.
        """
        return self._submit(request).result()

    def judge_many(
        self, requests: Sequence[JudgeRequest], progress: Callable[[int], object] | None = None
    ) -> list[Verdict]:
        """Judge many; verdicts come in the order of the requests, and a slow or crashing one holds up no other.

        Args:
            requests: equal ones are judged once.
            progress: called with 1 as each is done, from another thread; what it raises is ignored.
        """
        futures = [self._submit(request) for request in requests]
        if progress is not None:
            for future in futures:
                future.add_done_callback(lambda _: _tell(progress))
        wait(set(futures), return_when=FIRST_EXCEPTION)  # this thread sleeps until then
        return [future.result() for future in futures]

    def baseline(
        self, matrix: SparseMatrix, operator: str = "spmv", width: int = 1, precision: str = "float32"
    ) -> tuple[str, float]:
        """(name, time in microseconds) of what candidates on this matrix are compared with.

        With the emulator the time is modelled, of a plain CSR-vector kernel; on a GPU it is the fastest of cuSPARSE.
        """
        source = OPERATORS[operator].reference_program(matrix, width, get_precision(precision))
        request = JudgeRequest(source, matrix, operator, width, precision)
        verdict = self.judge(request)
        name, time_us = verdict.baseline, verdict.baseline_us
        if verdict.correct and time_us is None:
            raise UserError(f"{matrix.id}: {matrix.rows} x {matrix.cols} without entries: there is nothing to time")
        if not verdict.correct or name is None or time_us is None:
            raise SparseRLError(f"{BASELINE} on {matrix.id}: {verdict.status} {verdict.message}")
        return name, time_us

    # -- one request ---------------------------------------------------------------------------------------------

    def _submit(self, request: JudgeRequest) -> "Future[Verdict]":
        check_request(request, self.backend)
        key = self._key(request)
        return self._once(f"verdict {key}", lambda: self._judge(request, key), own_thread=True)

    def _once(self, key: str, work: Callable[[], Any], own_thread: bool = False) -> "Future[Any]":
        """Run `work`, or join the run of the same key that is under way."""
        with self._lock:
            if (running := self._running.get(key)) is not None:
                return running
            future: Future[Any] = Future()
            self._running[key] = future

        def run() -> None:
            try:
                result = work()
            except BaseException as error:
                self._forget(key)
                future.set_exception(error)
            else:
                self._forget(key)
                future.set_result(result)

        if own_thread:
            self._threads.submit(run)
        else:
            run()
        return future

    def _forget(self, key: str) -> None:
        with self._lock:
            self._running.pop(key, None)

    def _key(self, request: JudgeRequest) -> str:
        target = pattern_key(request.matrix), request.operator, request.width, request.precision
        return content_key(_source_hash(request.source), *target, self._running_here)

    def _judge(self, request: JudgeRequest, key: str) -> Verdict:
        with self.cache.lock("verdict", key):  # another process may be at it
            if (kept := self.cache.get("verdict", key)) is not None:
                return Verdict.from_dict(kept).with_(from_cache=True)
            verdict, lasting = self._judge_anew(request)
            if lasting:
                self.cache.put("verdict", key, verdict.to_dict())
            return verdict

    def _judge_anew(self, request: JudgeRequest) -> tuple[Verdict, bool]:
        """(verdict, whether the same request would always get it)."""
        found: dict[str, Any] = {
            "operator": request.operator,
            "width": request.width,
            "precision": request.precision,
            "arch": self.arch,
            "compiler": self.compiler,
            "program_hash": _source_hash(request.source),
        }
        compiled, lasting = self._compiled(request.source)
        if compiled["status"] != "compiled":
            found |= {name: compiled.get(name) for name in ("status", "message", "line")}
            return Verdict.from_dict(found), lasting
        used = compiled["resources"].values()
        found |= {
            "code_hash": compiled["code_hash"],
            "compile_ms": compiled["compile_ms"],
            "registers": max(numbers[0] for numbers in used),
            "spill_bytes": max(numbers[1] for numbers in used),
            "shared_bytes": max(numbers[2] for numbers in used),
        }
        # Programs that differ in their text alone compile to the same code and are checked once.
        code_key = content_key(
            compiled["code_hash"],
            compiled["contract_hash"],
            pattern_key(request.matrix),
            request.operator,
            request.width,
            request.precision,
            self._running_here,
        )
        answer, lasting, known, of = self._once(
            f"code {code_key}", lambda: self._checked_code(request, compiled, code_key)
        ).result()
        if of != request.source and answer.get("line") is not None:  # a line is one text's own
            answer, lasting = self._checked(request, compiled)
        verdict = Verdict.from_dict({**found, **answer, "from_cache": known})
        if verdict.correct and self._gpu is None:
            verdict = self._against_baseline(verdict, request)
        if verdict.correct:
            verdict = verdict.with_break_even()
        return verdict, lasting

    def _against_baseline(self, verdict: Verdict, request: JudgeRequest) -> Verdict:
        """Add the modelled baseline of the same matrix."""
        time_us = verdict.time_us
        if time_us is None:  # there was nothing to time
            return verdict
        precision = get_precision(request.precision)
        source = OPERATORS[request.operator].reference_program(request.matrix, request.width, precision)
        if source == request.source:
            return verdict.with_(baseline=BASELINE, baseline_us=time_us, speedup=1.0)
        reference = JudgeRequest(source, request.matrix, request.operator, request.width, request.precision)
        key = self._key(reference)
        base_us = self._baselines.get(key)
        if base_us is None:
            # In this thread and under its own name: a queued run of the same program may wait for a thread for ever.
            base: Verdict = self._once(f"baseline {key}", lambda: self._judge(reference, key)).result()
            if not base.correct or base.time_us is None:
                raise SparseRLError(f"{BASELINE} on {request.matrix.id}: {base.status} {base.message}")
            base_us = self._baselines[key] = base.time_us
        return verdict.with_(baseline=BASELINE, baseline_us=base_us, speedup=base_us / time_us)

    # -- the steps that workers do ---------------------------------------------------------------------------

    def _compiled(self, source: str) -> tuple[dict[str, Any], bool]:
        """The compile answer, from memory, disk or a worker; once for all that ask at the same time."""
        key = content_key(_source_hash(source), self._compiling)
        answer: tuple[dict[str, Any], bool] = self._once(f"compile {key}", lambda: self._compile(source, key)).result()
        return answer

    def _compile(self, source: str, key: str) -> tuple[dict[str, Any], bool]:
        if (kept := self._memory.get(key)) is not None:
            return kept, True
        with self.cache.lock("compile", key):
            if (kept := self.cache.get("compile", key)) is not None:
                return kept, True
            limit = self.settings.compile_cpu_s
            request = {
                "op": "compile",
                "source": source,
                "arch": self.arch,
                "cpu_s": limit,
                "memory_mb": self.settings.compile_memory_mb,
                "cubin": self.backend == "gpu",  # the interpreter runs the PTX
            }
            answer, lasting = self._call(request, {"parse": _START_S, "compile": limit * _SLACK + 5}, _COMPILE_DEATHS)
            if lasting:
                self.cache.put("compile", key, answer)
                self._remember(key, answer)
            return answer, lasting

    def _remember(self, key: str, answer: dict[str, Any]) -> None:
        with self._lock:
            while len(self._memory) >= 512:
                self._memory.popitem(last=False)
            self._memory[key] = answer

    def _checked_code(
        self, request: JudgeRequest, compiled: dict[str, Any], key: str
    ) -> tuple[dict[str, Any], bool, bool, str]:
        """(the answer, whether it would come again, whether it was known of an equal program, whose text it is of)."""
        if (kept := self._memory.get(key) or self.cache.get("code", key)) is not None:
            return kept, True, True, request.source
        answer, lasting = self._checked(request, compiled)
        if lasting and answer.get("line") is None:
            self.cache.put("code", key, answer, soon=True)
            self._remember(key, answer)
        return answer, lasting, False, request.source

    def _checked(self, request: JudgeRequest, compiled: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The adversarial set with the interpreter, once for each program, then the target on the backend."""
        problem = request.operator, request.width, request.precision
        gate_key = content_key(compiled["code_hash"], compiled["contract_hash"], *problem, self._checking)
        gate: dict[str, Any]
        own = f"gate {gate_key} {_source_hash(request.source)}"  # its answer may name a line of this text
        gate, lasting = self._once(own, lambda: self._gate(request, compiled, gate_key)).result()
        if gate["status"] != "correct" and not (self._gpu is not None and gate["status"] == "unsupported"):
            return gate, lasting
        if self._gpu is None:
            answer, lasting = self._run_check(self._check_request(request, compiled, target=True))
        else:
            answer, lasting = self._gpu.judge(self._gpu_request(request, compiled, gate_key not in self._passed_on_gpu))
            if answer["status"] == "correct":
                self._passed_on_gpu.add(gate_key)
        if answer["status"] == "correct":
            note = gate["message"]
            if gate["status"] == "unsupported":
                note = f"not checked for races: the interpreter cannot run it ({note})"
            answer["message"] = "; ".join(filter(None, [note, answer["message"]]))
        return answer, lasting

    def _gate(self, request: JudgeRequest, compiled: dict[str, Any], key: str) -> tuple[dict[str, Any], bool]:
        if (kept := self._memory.get(key) or self.cache.get("gate", key)) is not None:
            return kept, True
        answer, lasting = self._run_check(self._check_request(request, compiled, target=False))
        if lasting and answer.get("line") is None:
            self._remember(key, answer)
            self.cache.put("gate", key, answer, soon=True)
        return answer, lasting

    def _run_check(self, request: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        return self._call(request, {"check": self.settings.wall_s * _SLACK + 5}, _CHECK_DEATHS)

    def _limits(self) -> dict[str, int]:
        return {
            "instructions": self.settings.instruction_budget,
            "per_nonzero": self.settings.budget_per_nonzero,
        }

    def _check_request(self, request: JudgeRequest, compiled: dict[str, Any], target: bool) -> dict[str, Any]:
        return {
            "op": "check",
            "source": request.source,
            "ptx": compiled["ptx"],
            "code_hash": compiled["code_hash"],
            "resources": compiled["resources"],
            "arch": self.arch,
            "operator": request.operator,
            "width": request.width,
            "precision": request.precision,
            "matrix": self._handover.describe(request.matrix) if target else None,
            "adversarial": not target,
            "cpu_s": self.settings.wall_s,
            "limits": self._limits(),
        }

    def _gpu_request(self, request: JudgeRequest, compiled: dict[str, Any], adversarial: bool) -> dict[str, Any]:
        return {
            "source": request.source,
            "cubin": compiled["cubin"],
            "code_hash": compiled["code_hash"],
            "operator": request.operator,
            "width": request.width,
            "precision": request.precision,
            "matrix": self._handover.describe(request.matrix),
            "adversarial": adversarial,
            "deadline_s": _DEADLINE_S + _DEADLINE_PER_ENTRY_S * request.matrix.nnz * request.width,
        }

    def _call(
        self, request: dict[str, Any], wall_s: dict[str, float], deaths: dict[str, str]
    ) -> tuple[dict[str, Any], bool]:
        """A worker's answer, or what its death means; (answer, whether the same request would always get it)."""
        try:
            return self._pool.call(request, {"start": _START_S, **wall_s}), True
        except WorkerBug as error:
            _LOG.error("a worker failed on program %s\n%s", request["source"][:60].replace("\n", " | "), error)
            last = str(error).strip().splitlines()[-1]
            return {"status": "unsupported", "message": f"the judge's worker failed: {last}"}, False
        except WorkerDied as death:
            how = death.how()
            if death.stage == "start":
                raise SparseRLError(f"a judge's worker died before it began: {how}") from None
            late = death.by_cpu_limit or death.deadline
            status = "timeout" if late and death.stage == "check" else deaths[death.stage]
            answer = {"status": status, "message": f"stopped at {death.stage}: {how}"}
            return answer, death.by_cpu_limit or death.crashed


@functools.lru_cache(maxsize=1024)
def _source_hash(source: str) -> str:
    """SHA-256 of a program's text: several keys of every verdict hold it."""
    return sha256_text(source)


def _tell(progress: Callable[[int], object]) -> None:
    """A bar whose terminal is gone must not cost a verdict."""
    with contextlib.suppress(Exception):
        progress(1)
