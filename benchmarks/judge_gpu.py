"""The judge on a GPU: how fast, how noisy, how it recovers, and whether the interpreter says the same.

    python benchmarks/judge_gpu.py --matrices DIR --out judge.json throughput noise recovery agreement

On a host with one NVIDIA GPU, from the project's root; needs components/ alone, no settings file. DIR holds .mtx[.gz]
files in folders named by group. Each section is measured anew and replaces the same section in an existing file:

throughput  unique programs, three matrices each, every check on, nothing cached; every format was seen once, so that
            matrices are resident: evaluations (a program on all three matrices) and verdicts a second, and the share
            of the time that the executor worked
noise       A/A: each program timed against itself
recovery    bad programs straight to the executor, without the interpreter that would keep them away: time from the bad
            verdict to the next correct one, while other threads judge good programs
agreement   (program, matrix) pairs judged by the GPU without the interpreter's gate, and by the interpreter alone
repeats     what a duplicate costs

The figures that are quoted stand at the top of the file, with those of judge_tamper.json and model_fit.json if these
lie beside it (benchmarks/judge_tamper.py, benchmarks/model_fit.py).
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.host import machine  # noqa: E402
from benchmarks.judge_throughput import unique_programs  # noqa: E402
from components.errors import UserError  # noqa: E402
from components.files import write_json  # noqa: E402
from components.judge.judge import Judge, JudgeRequest  # noqa: E402
from components.judge.options import judge_defaults, resolve_backend  # noqa: E402
from components.kernel.families import all_programs, spread  # noqa: E402
from components.kernel.program import parse  # noqa: E402
from components.matrix.load import load_matrix  # noqa: E402
from components.matrix.types import SparseMatrix  # noqa: E402

_HEAD = "// format: csr\n// launch: spmv grid=ceil_div(rows, 128) block=128\n"
_BODY = """extern "C" __global__ void spmv(const int* row_ptr, const int* col_idx, const float* values,
                                const float* x, float* y, int rows) {{
  const int r = blockIdx.x * 128 + threadIdx.x;
  {guard}
  float s = 0.f;
  for (int k = row_ptr[r]; k < row_ptr[r + 1]{less}; ++k) s += values[k] * x[col_idx[k]];
  {end}
}}
"""


def _program(end: str, guard: str = "if (r >= rows) return;", less: str = "") -> str:
    return _HEAD + _BODY.format(end=end, guard=guard, less=less)


# Wrong on purpose: verdicts must agree on these too.
FAULTY = {
    "zeros": _program("y[r] = 0.f * s;"),
    "drops-the-last-entry": _program("y[r] = s;", less=" - 1"),
    "writes-without-guard": _program("y[r] = s;", guard=""),
    "writes-far-away": _program("y[r] = s; y[(1LL << 36) + r] = 0.f;"),
}
# What each does to the process that runs it.
KILLERS = {
    "illegal_access": _program("y[r] = s; y[(1LL << 40) + r] = s;"),
    "timeout": _program("volatile const float* p = x; while (p[0] == p[0] || p[0] != p[0]) {} y[r] = s;"),
    "misaligned": _program("y[r] = s; *(volatile double*)((char*)y + 4 * r + 1) = s;"),
    "trap": _program("y[r] = s; if (s == s) __trap();"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="+", choices=sorted(SECTIONS))
    parser.add_argument("--matrices", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--programs", type=int, default=900, help="of the throughput section")
    parser.add_argument("--noise-programs", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=100, help="of the recovery section")
    parser.add_argument("--pairs", type=int, default=320, help="of the agreement section, at least")
    parser.add_argument("--workers", type=int, default=0)
    arguments = parser.parse_args()
    backend, arch = resolve_backend(judge_defaults())
    if backend != "gpu":
        raise SystemExit("this benchmark needs an NVIDIA GPU")
    matrices = load(arguments.matrices)
    result: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    result["environment"] = machine()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["SPARSERL_CACHE"] = cache
        settings = judge_defaults(backend="gpu")
        with Judge(settings, arch, "gpu", workers=arguments.workers or None) as judge:
            result["environment"] |= {
                "compiler": judge.compiler,
                "device": judge._gpu.device,
                "facts": judge._gpu.facts,
            }
            for name in arguments.sections:
                start = time.monotonic()
                result[name] = {
                    **SECTIONS[name](judge, matrices, arguments),
                    "section_s": round(time.monotonic() - start, 1),
                    "command": " ".join(["python", *sys.argv]),
                }
                print(name, json.dumps({k: v for k, v in result[name].items() if k != "rows"}), flush=True)
                result = {**result, **summary(result, arguments.out.parent)}
                write_json(arguments.out, result)


def summary(result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The quoted figures, as far as their sections were measured."""
    top: dict[str, Any] = {}
    if (part := result.get("throughput")) is not None:
        top |= {name: part[name] for name in ("evaluations_per_s", "busy_share", "compile_p50_ms")}
    if (part := result.get("noise")) is not None:
        top["aa_noise"] = {name: part[name] for name in ("at_least_10us", "below_10us")}
    if (tamper := folder / "judge_tamper.json").exists():
        found = json.loads(tamper.read_text())
        top |= {"escapes": len(found["escapes"]), "false_alarms": len(found["false_alarms"])}
    if (fit := folder / "model_fit.json").exists():
        held = json.loads(fit.read_text())["held_out"]
        top["model"] = _short(held)
    if (check := folder / "model_check.json").exists():
        top["model_check"] = _short(json.loads(check.read_text())["all"])
    return top


def _short(figures: dict[str, Any]) -> dict[str, Any]:
    return {"tau": figures["kendall_tau"], **{name: figures[name] for name in ("ordered_1_5x", "regret", "pairs")}}


def load(folder: Path) -> list[SparseMatrix]:
    """Every readable matrix, smallest first."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.name.endswith((".mtx", ".mtx.gz", ".npz")):
            try:
                found.append(load_matrix(path, group=path.parent.name))
            except UserError as error:
                print(f"left out: {error}", file=sys.stderr)
    return sorted(found, key=lambda matrix: matrix.nnz)


def throughput(judge: Judge, matrices: list[SparseMatrix], arguments: argparse.Namespace) -> dict[str, Any]:
    """Unique programs of all families on three matrices of different structure and size."""
    eligible = [matrix for matrix in matrices if matrix.nnz <= 300_000]
    chosen = [eligible[len(eligible) * part // 6] for part in (1, 3, 5)]
    sources = unique_programs(arguments.programs)
    formats = {str(parse(program.source).format): program.source for program in all_programs("spmv")}
    judge.judge_many([JudgeRequest(source, matrix) for source in formats.values() for matrix in chosen])
    gpu = judge._gpu
    before, own, start = dict(gpu.spent_s), time.process_time(), time.monotonic()
    verdicts = judge.judge_many([JudgeRequest(source, matrix) for source in sources for matrix in chosen])
    seconds = time.monotonic() - start
    spent = {what: seconds - before.get(what, 0.0) for what, seconds in gpu.spent_s.items()}
    compiled = [v.compile_ms for v in verdicts[:: len(chosen)] if v.compile_ms is not None]
    doubtful = [v for v in verdicts if v.correct and v.reliable is False]
    return {
        "evaluations_per_s": len(sources) / seconds,
        "verdicts_per_s": len(verdicts) / seconds,
        "busy_share": spent["all"] / seconds,
        "spent_ms_per_verdict": {what: 1e3 * s / len(verdicts) for what, s in spent.items()},
        "compile_p50_ms": float(np.median(compiled)),
        "judge_process_cpu_share": (time.process_time() - own) / seconds,
        "programs": len(sources),
        "unique_code": len({v.code_hash for v in verdicts if v.code_hash}),
        "seconds": seconds,
        "workers": judge.workers,
        "matrices": [{"id": m.id, "rows": m.rows, "nnz": m.nnz} for m in chosen],
        "statuses": dict(Counter(str(v.status) for v in verdicts)),
        "messages": dict(Counter(v.message for v in verdicts if not v.correct).most_common(5)),
        "unreliable": len(doubtful),
        "unreliable_because": dict(Counter((v.unreliable_because or "")[:24] for v in doubtful).most_common(5)),
        "samples_p50": float(np.median([v.samples for v in verdicts if v.samples])),
        "restarts": judge.restarts,
    }


def noise(judge: Judge, matrices: list[SparseMatrix], arguments: argparse.Namespace) -> dict[str, Any]:
    """Programs of all families, each against itself on a small, a middling and a large matrix."""
    programs = spread(list(all_programs("spmv")), arguments.noise_programs, seed=11)
    chosen = [matrices[len(matrices) // 6], matrices[len(matrices) // 2], matrices[-1]]
    rows = []
    for number, program in enumerate(programs):
        for matrix in (chosen[number % 3], chosen[(number + 1) % 3]):
            answer = direct(judge, program.source, matrix, self_duel=True)
            if answer["status"] == "correct" and answer.get("time_us"):
                rows.append([answer["time_us"], answer["speedup"], answer["speedup_cold"], answer["samples"]])
    table = np.array(rows)
    off, cold = np.abs(table[:, 1] - 1), np.abs(table[:, 2] - 1)
    long = table[:, 0] >= 10
    return {
        "programs": len(programs),
        "pairs": len(rows),
        "at_least_10us": quantiles(off[long]),
        "below_10us": quantiles(off[~long]),
        "cold_at_least_10us": quantiles(cold[long]),
        "cold_below_10us": quantiles(cold[~long]),
        "median_ratio": float(np.median(table[:, 1])),
    }


def quantiles(values: Any) -> dict[str, float | int | None]:
    """Of |ratio - 1|."""
    if not len(values):
        return {"n": 0, "p50": None, "p95": None, "max": None}
    p50, p95 = np.percentile(values, (50, 95))
    return {"n": len(values), "p50": float(p50), "p95": float(p95), "max": float(values.max())}


def recovery(judge: Judge, matrices: list[SparseMatrix], arguments: argparse.Namespace) -> dict[str, Any]:
    """Kinds of faults in turn; neighbours run on other threads all the while."""
    matrix = matrices[len(matrices) // 2]
    # Of formats that the matrix can be stored in.
    good = [source for source in unique_programs(24) if direct(judge, source, matrix)["status"] == "correct"][:8]
    stop, touched, judged = threading.Event(), [], []

    def neighbour(number: int) -> None:
        while not stop.is_set():
            answer = direct(judge, good[number], matrix)
            judged.append(answer["status"])
            if answer["status"] != "correct":
                touched.append(answer)
            time.sleep(0.05)

    seconds, kinds = [], list(KILLERS)
    statuses: Counter[str] = Counter()
    with ThreadPoolExecutor(2) as threads:
        neighbours = [threads.submit(neighbour, number) for number in range(2)]
        try:
            for round_ in range(arguments.rounds):
                kind = kinds[round_ % len(kinds)]
                bad = direct(judge, KILLERS[kind], matrix, deadline_s=0.3)
                ended = time.monotonic()
                statuses[f"{kind}: {bad['status']}"] += 1
                while direct(judge, good[round_ % len(good)], matrix)["status"] != "correct":
                    pass
                seconds.append(time.monotonic() - ended)
        finally:
            stop.set()
        for future in neighbours:
            future.result()
    return {
        "n": len(seconds),
        "max_s": max(seconds),
        "p50_s": float(np.median(seconds)),
        "within_2s": sum(s <= 2 for s in seconds),
        "statuses": dict(statuses),
        "neighbours_judged": len(judged),
        "neighbours_touched": len(touched),
        "restarts": judge.restarts,
    }


def agreement(judge: Judge, matrices: list[SparseMatrix], arguments: argparse.Namespace) -> dict[str, Any]:
    """Programs of all families and faulty ones, on small matrices: each backend on its own."""
    small = [matrix for matrix in matrices if matrix.nnz <= 40_000][:8]
    count = -(-arguments.pairs // len(small)) - len(FAULTY)
    named = {f"{p.family} {json.dumps(dict(p.parameters), sort_keys=True)}": p.source
             for p in spread(list(all_programs("spmv")), count, seed=17)}  # fmt: skip
    named |= {f"faulty {name}": source for name, source in FAULTY.items()}
    named |= {f"killer {name}": source for name, source in KILLERS.items()}
    # What costs the executor its context is tried on three of them.
    pairs = [(name, m) for name in named for m in (small[::3] if name.startswith("killer") else small)]

    def interpreted(pair: tuple[str, SparseMatrix]) -> dict[str, Any]:
        request = JudgeRequest(named[pair[0]], pair[1])
        compiled, _ = judge._compiled(request.source)
        if compiled["status"] != "compiled":
            return compiled
        return judge._run_check(judge._check_request(request, compiled, target=True))[0]

    with ThreadPoolExecutor(judge.workers) as threads:
        expected = list(threads.map(interpreted, pairs))
    measured = [direct(judge, named[name], matrix) for name, matrix in pairs]
    differing = [
        {"program": name, "matrix": matrix.id, "interpreter": f"{e['status']}: {e.get('message', '')}"[:160],
         "gpu": f"{m['status']}: {m.get('message', '')}"[:160]}
        for (name, matrix), e, m in zip(pairs, expected, measured, strict=True) if e["status"] != m["status"]
    ]  # fmt: skip
    return {
        "n": len(pairs),
        "equal": len(pairs) - len(differing),
        "statuses": dict(Counter(str(m["status"]) for m in measured)),
        "differing": differing,
    }


def repeats(judge: Judge, matrices: list[SparseMatrix], arguments: argparse.Namespace) -> dict[str, Any]:
    """A request that was answered before, and a compile error under another matrix."""
    source = unique_programs(1)[0]
    first = judge.judge(JudgeRequest(source, matrices[0]))
    again = []
    for _ in range(200):
        start = time.perf_counter()
        judge.judge(JudgeRequest(source, matrices[0]))
        again.append(time.perf_counter() - start)
    return {"status": str(first.status), "duplicate_ms_p50": 1e3 * float(np.median(again))}


def direct(judge: Judge, source: str, matrix: SparseMatrix, **more: Any) -> dict[str, Any]:
    """The executor's answer on the target alone, with no interpreter before it."""
    request = JudgeRequest(source, matrix)
    compiled, _ = judge._compiled(source)
    if compiled["status"] != "compiled":
        raise SystemExit(f"a benchmark's program does not compile: {compiled['message']}")
    answer: dict[str, Any] = judge._gpu.judge({**judge._gpu_request(request, compiled, False), **more})[0]
    return answer


SECTIONS: dict[str, Callable[[Judge, list[SparseMatrix], argparse.Namespace], dict[str, Any]]] = {
    "throughput": throughput,
    "noise": noise,
    "recovery": recovery,
    "agreement": agreement,
    "repeats": repeats,
}

if __name__ == "__main__":
    main()
