"""Do the interpreter and the GPU give the same verdicts, and how do modelled times compare with measured ones?

On a GPU host, from the project's root:

    python benchmarks/gpu_agreement.py run --matrices DIR --backend gpu --out gpu.json
    python benchmarks/gpu_agreement.py run --matrices DIR --backend emulator --out emulator.json
    python benchmarks/gpu_agreement.py compare gpu.json emulator.json --out agreement.json

`run` needs no settings file. DIR holds .mtx, .mtx.gz or .npz files; each run takes the same ones, the same programs and
seeds (--programs, --limit).
"""

import argparse
import importlib
import json
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from components.errors import UserError  # noqa: E402
from components.files import write_json  # noqa: E402
from components.judge.judge import Judge, JudgeRequest  # noqa: E402
from components.judge.options import judge_defaults, resolve_backend  # noqa: E402
from components.judge.verdict import Verdict  # noqa: E402
from components.kernel.families import all_programs, spread  # noqa: E402
from components.matrix.load import load_matrix  # noqa: E402
from components.matrix.types import SparseMatrix  # noqa: E402

_HEAD = "// format: csr\n// launch: spmv grid=ceil_div(rows, 128) block=128\n"
_KERNEL = """extern "C" __global__ void spmv(const int* row_ptr, const int* col_idx, const float* values,
                                const float* x, float* y, int rows) {{
  const int r = blockIdx.x * 128 + threadIdx.x;
  {guard}
  float s = 0.f;
  for (int k = row_ptr[r]; k < row_ptr[r + 1]{less}; ++k) s += values[k] * x[col_idx[k]];
  y[r] = {result};
}}
"""
_GUARD = "if (r >= rows) return;"
# Wrong on purpose: verdicts must agree on these too.
FAULTY = {
    "zeros": _KERNEL.format(guard=_GUARD, less="", result="0.f * s"),
    "drops-the-last-entry": _KERNEL.format(guard=_GUARD, less=" - 1", result="s"),
    "writes-without-guard": _KERNEL.format(guard="", less="", result="s"),
    "writes-far-away": _KERNEL.format(guard=_GUARD, less="", result="s; y[(1LL << 36) + r] = 0.f"),
    "spins": _KERNEL.format(
        guard=_GUARD, less="", result="s; volatile float* p = y; while (p[r] == p[r] || p[r] != p[r]) {}"
    ),
}


def programs(operator: str, count: int, faulty: bool) -> dict[str, str]:
    """Name -> source: `count` programs spread over the families, and the faulty ones."""
    chosen = spread(list(all_programs(operator)), count, seed=7)
    found = {f"{p.family} {json.dumps(dict(p.parameters), sort_keys=True)}": p.source for p in chosen}
    if faulty and operator == "spmv":
        found |= {f"faulty {name}": _HEAD + source for name, source in FAULTY.items()}
    return found


def matrices(folder: Path, limit: int, max_nnz: int) -> list[SparseMatrix]:
    """The first `limit` matrices of a folder, by name, that are real and not too large."""
    found: list[SparseMatrix] = []
    for path in sorted(folder.rglob("*")):
        if len(found) == limit:
            break
        if path.name.endswith((".mtx", ".mtx.gz", ".npz")):
            try:
                matrix = load_matrix(path, group=path.parent.name)
            except UserError as error:
                print(f"left out: {error}", file=sys.stderr)
                continue
            if 0 < matrix.nnz <= max_nnz:
                found.append(matrix)
    return found


def machine() -> dict[str, Any]:
    """Versions, driver and clocks."""
    facts: dict[str, Any] = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("numpy", "numba", "cupy"):
        try:
            facts[name] = importlib.import_module(name).__version__
        except ImportError:
            facts[name] = None
    if command := shutil.which("nvidia-smi"):
        fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw"
        answer = subprocess.run(
            [command, f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, check=False
        )
        facts["gpu"] = dict(zip(fields.split(","), [part.strip() for part in answer.stdout.split(",")], strict=False))
    return facts


def run(arguments: argparse.Namespace) -> None:
    settings = judge_defaults(backend=arguments.backend, cache=False)
    backend, arch = resolve_backend(settings)
    targets = matrices(arguments.matrices, arguments.limit, arguments.max_nnz)
    sources = programs(arguments.operator, arguments.programs, arguments.faulty)
    pairs = [(name, source, target) for target in targets for name, source in sources.items()]
    before, start = machine(), time.monotonic()
    with Judge(settings, arch, backend, workers=arguments.workers) as judge:
        requests = [JudgeRequest(source, target, arguments.operator, arguments.width) for _, source, target in pairs]
        verdicts = judge.judge_many(requests)
        restarts, compiler = judge.restarts, judge.compiler
    seconds = time.monotonic() - start
    rows = [
        {"program": name, "matrix": target.id, "rows": target.rows, "nnz": target.nnz, **verdict.to_dict()}
        for (name, _, target), verdict in zip(pairs, verdicts, strict=True)
    ]
    write_json(
        arguments.out,
        {
            "command": " ".join(["python", *sys.argv]),
            "backend": backend,
            "arch": arch,
            "compiler": compiler,
            "machine_before": before,
            "machine_after": machine(),
            "seconds": seconds,
            "judged_per_s": len(pairs) / seconds,
            "worker_restarts": restarts,
            "statuses": count(verdicts),
            "rows": rows,
        },
    )
    print(f"{len(pairs)} verdicts in {seconds:.1f} s on {backend}: {count(verdicts)}")


def count(verdicts: list[Verdict]) -> dict[str, int]:
    """How many of each status."""
    statuses = [str(verdict.status) for verdict in verdicts]
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def compare(arguments: argparse.Namespace) -> None:
    """Agreement of statuses, and of the order of times within each matrix."""
    sides = [json.loads(path.read_text(encoding="utf-8")) for path in (arguments.gpu, arguments.emulator)]
    tables = [{(row["program"], row["matrix"]): row for row in side["rows"]} for side in sides]
    common = sorted(set(tables[0]) & set(tables[1]))
    differ = [
        {"program": key[0], "matrix": key[1], "gpu": _short(tables[0][key]), "emulator": _short(tables[1][key])}
        for key in common
        if tables[0][key]["status"] != tables[1][key]["status"]
    ]
    agreement, ordered, apart, ratios = [], 0, 0, []
    for matrix in sorted({key[1] for key in common}):
        both = [(tables[0][key]["time_us"], tables[1][key]["time_us"]) for key in common if key[1] == matrix]
        times = np.array([pair for pair in both if None not in pair], float).reshape(-1, 2)
        ratios += list(times[:, 1] / times[:, 0])
        signs = []
        for first in range(len(times)):
            for second in range(first):
                real, model = times[first] / times[second]
                signs.append(np.sign(np.log(real)) * np.sign(np.log(model)))
                if max(real, 1 / real) >= 1.5:
                    apart += 1
                    ordered += signs[-1] > 0
        if signs:
            agreement.append(float(np.mean(signs)))
    result = {
        "pairs": len(common),
        "equal": len(common) - len(differ),
        "differ": differ,
        "kendall_tau_within_matrix": float(np.mean(agreement)) if agreement else None,
        "pairs_1_5x_apart": apart,
        "ordered_right": int(ordered),
        "modelled_over_measured": {
            name: float(np.percentile(ratios, share)) for name, share in (("p10", 10), ("median", 50), ("p90", 90))
        }
        if ratios
        else None,
        "gpu": sides[0]["machine_after"],
        "command": " ".join(["python", *sys.argv]),
    }
    write_json(arguments.out, result)
    print(json.dumps(result, indent=2))


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("status", "message", "failed_on")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    judge = commands.add_parser("run", help="judge N programs on M matrices with one backend")
    judge.add_argument("--matrices", type=Path, required=True)
    judge.add_argument("--programs", type=int, default=10)
    judge.add_argument("--limit", type=int, default=10, help="matrices")
    judge.add_argument("--max-nnz", type=int, default=2_000_000)
    judge.add_argument("--operator", choices=("spmv", "spmm"), default="spmv")
    judge.add_argument("--width", type=int, default=1)
    judge.add_argument("--backend", choices=("gpu", "emulator"), required=True)
    judge.add_argument("--workers", type=int, default=0)
    judge.add_argument("--faulty", action=argparse.BooleanOptionalAction, default=True, help="judge faulty ones too")
    judge.add_argument("--out", type=Path, required=True)
    judge.set_defaults(action=run)
    both = commands.add_parser("compare", help="compare two runs")
    both.add_argument("gpu", type=Path)
    both.add_argument("emulator", type=Path)
    both.add_argument("--out", type=Path, required=True)
    both.set_defaults(action=compare)
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()
