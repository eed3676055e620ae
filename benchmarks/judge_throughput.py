"""Candidates a second and core, end to end: parse, compile, verify, model the time.

    python benchmarks/judge_throughput.py [--programs 120] [--workers 1] [--out FILE]

Every program is unique (a constant differs), the cache is off, matrices have up to 3,000 rows, and each candidate is
verified on the adversarial set as well. A program's matrices share its compile, so both rates are printed.
"""

import argparse
import json
import os
import platform
import re
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from components.files import write_json  # noqa: E402
from components.judge.judge import Judge, JudgeRequest  # noqa: E402
from components.judge.options import judge_defaults  # noqa: E402
from components.kernel.families import FAMILIES, all_programs, spread  # noqa: E402
from components.matrix.generate import generate  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=120)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--matrices", type=int, default=1, help="matrices each program is judged on, 1 to 3")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    matrices = [generate(family, 12_000, 5) for family in ("stencil2d", "rmat", "uniform")][: arguments.matrices]
    sources = unique_programs(arguments.programs)
    settings = judge_defaults(backend="emulator", cache=False)
    with Judge(settings, "sm_90", workers=arguments.workers) as judge:
        for matrix in matrices:  # start the workers, and time the baselines outside of the clock
            judge.baseline(matrix)
        requests = [JudgeRequest(source, matrix) for source in sources for matrix in matrices]
        start, used = time.monotonic(), judge.cpu_seconds()
        verdicts = judge.judge_many(requests)
        seconds, cpu_seconds = time.monotonic() - start, judge.cpu_seconds() - used
    statuses = [str(verdict.status) for verdict in verdicts]
    compile_ms = [verdict.compile_ms for verdict in verdicts if verdict.compile_ms is not None]
    result = {
        "candidates_per_s_per_core": len(sources) / seconds / arguments.workers,
        "verdicts_per_s_per_core": len(requests) / seconds / arguments.workers,
        "candidates_per_cpu_s": len(sources) / cpu_seconds,  # what an idle machine would give
        "compile_p50_ms": float(np.median(compile_ms)),
        "programs": len(sources),
        "matrices": [{"name": m.id, "rows": m.rows, "nnz": m.nnz} for m in matrices],
        "workers": arguments.workers,
        "statuses": {status: statuses.count(status) for status in sorted(set(statuses))},
        "seconds": seconds,
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "compiler": judge.compiler,
        "command": " ".join(["python", *sys.argv]),
    }
    print(json.dumps(result, indent=2))
    if arguments.out:
        write_json(arguments.out, result)


def unique_programs(count: int) -> list[str]:
    """Programs of all spmv families, each with a constant of its own in dead code that no compiler can drop."""
    chosen = spread(list(all_programs("spmv")), min(count, len(list(all_programs("spmv")))), seed=3)
    assert {program.family for program in chosen} <= set(FAMILIES)
    sources = []
    for number in range(count):
        source = chosen[number % len(chosen)].source
        guard = f"  if (gridDim.x == {2_000_000_000 + number}) return;\n"
        head = re.search(r"__global__[^{]*\{\n", source)
        assert head is not None
        sources.append(source[: head.end()] + guard + source[head.end() :])
    return sources


if __name__ == "__main__":
    main()
