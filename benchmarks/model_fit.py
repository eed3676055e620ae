"""Fit the constants of the modelled time on measured (program, matrix) pairs, and publish how well it does on others.

On a GPU host, from the project's root (neither needs a settings file; `collect` needs numpy, scipy, numba and NVRTC):

    set="--matrices DIR --programs 110 --spmm-programs 30 --limit 20"
    python benchmarks/model_fit.py measure $set --out measured.json    # the judge's times
    python benchmarks/model_fit.py collect $set --out counters.json    # the interpreter's counters; needs no GPU

and then anywhere

    python benchmarks/model_fit.py fit --counters counters.json --measured measured.json --out DIR

`fit` prints the constants for components/judge/model_constants.py, and writes model_pairs.json (the joined table) and
model_fit.json (the figures) to DIR. Constants are fitted on every second matrix, without the kernels that are of no
family; the figures on the others are the ones to quote.

    python benchmarks/model_fit.py check --counters counters.json --measured measured.json --out DIR

fits nothing: it writes to model_check.json (and model_check_pairs.json) how well the constants that the product ships
do on other measurements.

`measure` and `collect` take the same programs (`chosen_programs`) and matrices (`chosen_matrices`) when given the same
--programs, --spmm-programs, --limit and --max-nnz. Run both with the same version of NVRTC, best on one host: pairs
whose compiled code differs (`code_hash`) are left out of the fit.
"""

import argparse
import bisect
import dataclasses
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

from model_figures import (  # noqa: E402
    Bools,
    Floats,
    Pairs,
    by_family,
    figures,
    held_out_matrices,
    join,
    load_table,
    read_pairs,
)
from model_fit_kernels import outside_kernels  # noqa: E402

from components.errors import UserError  # noqa: E402
from components.files import sha256_text, write_json, write_text  # noqa: E402
from components.judge.model_constants import Constants  # noqa: E402
from components.kernel.families import all_programs, spread  # noqa: E402
from components.kernel.precision import FLOAT32  # noqa: E402
from components.matrix.generate import generate  # noqa: E402
from components.matrix.load import load_matrix  # noqa: E402
from components.matrix.types import SparseMatrix  # noqa: E402

WIDTHS = (8, 32)  # dense columns of the spmm programs
SEED = 11  # of the choice of programs and of the generated matrices
SMALLEST = 8_000  # bytes of a file: on smaller matrices every program takes as long as an empty launch
# Sizes and structures that few files have; the last one does not fit in the L2 cache of an H200.
GENERATED = (("dense-rows", 200_000), ("fem-block", 400_000), ("rmat", 1_200_000), ("stencil3d", 8_000_000))


@dataclass(frozen=True)
class Entry:
    """A program of the set."""

    name: str  # family and parameters
    family: str
    source: str
    operator: str
    width: int


def chosen_programs(spmv: int, spmm: int) -> list[Entry]:
    """The programs that are measured and modelled: spread over all families, and a few of no family.

    Args:
        spmv: how many spmv programs, 0 for all.
        spmm: how many (spmm program, width) pairs, 0 for none; each program comes at every width.
    """
    found = [Entry(name, "outside", source, "spmv", 1) for name, source in outside_kernels().items()]
    for operator, count, widths in (("spmv", spmv, (1,)), ("spmm", -(-spmm // len(WIDTHS)), WIDTHS)):
        if operator == "spmm" and not count:
            continue
        for program in spread(list(all_programs(operator)), count, seed=SEED):
            name = f"{program.family} {json.dumps(dict(program.parameters), sort_keys=True)}"
            found += [Entry(name, program.family, program.source, operator, width) for width in widths]
    return found


def chosen_matrices(folder: Path, limit: int, max_nnz: int, names: list[str] | None = None) -> list[SparseMatrix]:
    """`limit` matrices of a folder, spread over the sizes of their files, and `GENERATED`; with `names` those alone.

    Args:
        folder: of .mtx, .mtx.gz or .npz files in folders named by their group.
        limit: matrices of the folder.
        max_nnz: files of matrices with more entries are passed over for the next smaller one.
        names: `group/name` of what to take instead.
    """
    paths = [p for p in sorted(folder.rglob("*")) if p.name.endswith((".mtx", ".mtx.gz", ".npz"))]
    made = {f"generated/{family}-{nnz}": (family, nnz) for family, nnz in GENERATED}
    if names is None:
        paths = [p for p in paths if p.stat().st_size >= SMALLEST]
    else:
        paths = [p for p in paths if f"{p.parent.name}/{p.name.split('.')[0]}" in names]
        made = {name: how for name, how in made.items() if name in names}
        limit = len(paths)
    paths.sort(key=lambda path: (path.stat().st_size, path.name))
    sizes = [path.stat().st_size for path in paths]
    taken: set[int] = set()
    found: list[SparseMatrix] = []
    for number in range(limit):
        wanted = sizes[0] * (sizes[-1] / sizes[0]) ** (number / max(1, limit - 1))
        place = number if names is not None else bisect.bisect_right(sizes, wanted) - 1
        while place >= 0:
            if place not in taken:
                taken.add(place)
                try:
                    matrix = load_matrix(paths[place], group=paths[place].parent.name)
                except UserError as error:
                    print(f"left out: {error}", file=sys.stderr)
                else:
                    if 0 < matrix.nnz <= max_nnz:
                        found.append(matrix)
                        break
            place -= 1
    for name, (family, nnz) in made.items():
        group, _, own = name.partition("/")
        found.append(dataclasses.replace(generate(family, nnz, SEED), name=own, group=group))
    return found


def read_names(path: Path | None) -> list[str] | None:
    """group/name a line, or the `matrix` fields of a file that `measure` wrote."""
    if path is None:
        return None
    text = path.read_text(encoding="utf-8")
    if text.startswith("{"):
        return sorted({row["matrix"] for row in json.loads(text)["rows"]})
    return text.split()


# -- measure --------------------------------------------------------------------------------------------------------


def measure(arguments: argparse.Namespace) -> None:
    """Judge every program on every matrix with a GPU and keep the times."""
    from benchmarks.host import machine
    from components.judge.judge import Judge, JudgeRequest
    from components.judge.options import judge_defaults, resolve_backend

    settings = judge_defaults(backend=arguments.backend, cache=False)
    backend, arch = resolve_backend(settings)
    targets = chosen_matrices(arguments.matrices, arguments.limit, arguments.max_nnz, read_names(arguments.names))
    entries = chosen_programs(arguments.programs, arguments.spmm_programs)
    pairs = [(entry, target) for target in targets for entry in entries]
    start = time.monotonic()
    with Judge(settings, arch, backend, workers=arguments.workers) as judge:
        verdicts = judge.judge_many([JudgeRequest(e.source, t, e.operator, e.width) for e, t in pairs])
        compiler = judge.compiler
    rows = []
    for (entry, target), verdict in zip(pairs, verdicts, strict=True):
        found = verdict.to_dict()
        kept = ("status", "message", "time_us", "time_cold_us", "p10_us", "p90_us", "cv", "baseline_us", "reliable",
                "program_hash", "code_hash", "gpu", "driver")  # fmt: skip
        key = {"program": entry.name, "matrix": target.id, "operator": entry.operator, "width": entry.width}
        rows.append(key | {name: found.get(name) for name in kept})
    write_json(
        arguments.out,
        {
            "command": " ".join(["python", *sys.argv]),
            "backend": backend,
            "arch": arch,
            "compiler": compiler,
            "machine": machine(),
            "seconds": time.monotonic() - start,
            "rows": rows,
        },
    )
    statuses = [str(verdict.status) for verdict in verdicts]
    counts = {s: statuses.count(s) for s in sorted(set(statuses))}
    print(f"{len(rows)} verdicts in {time.monotonic() - start:.0f} s: {counts}")


# -- collect --------------------------------------------------------------------------------------------------------

_TARGETS: list[SparseMatrix] = []


def collect(arguments: argparse.Namespace) -> None:
    """Run every program on every matrix in the interpreter and keep the counters of each launch."""
    from components.judge.compile import compiler_version
    from components.judge.interpret import preload_interpreter

    start = time.monotonic()
    names = read_names(arguments.names)
    _TARGETS.extend(chosen_matrices(arguments.matrices, arguments.limit, arguments.max_nnz, names))
    entries = chosen_programs(arguments.programs, arguments.spmm_programs)
    preload_interpreter()
    workers = arguments.workers or len(os.sched_getaffinity(0))
    rows = []
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for number, found in enumerate(pool.map(_counted, [(entry, arguments.arch) for entry in entries]), 1):
            rows += found
            print(f"\r{number} of {len(entries)} programs, {time.monotonic() - start:.0f} s", end="", file=sys.stderr)
    write_json(
        arguments.out,
        {
            "command": " ".join(["python", *sys.argv]),
            "arch": arguments.arch,
            "compiler": compiler_version(),
            "matrices": {t.id: {"rows": t.rows, "cols": t.cols, "nnz": t.nnz} for t in _TARGETS},
            "rows": rows,
        },
    )
    print(f"\n{len(rows)} pairs in {time.monotonic() - start:.0f} s", file=sys.stderr)


def _counted(task: tuple[Entry, str]) -> list[dict[str, Any]]:
    """Counters and shapes of one program on every matrix that its format can store."""
    from components.judge.compile import compile_program
    from components.judge.emulate.machine import load_ptx
    from components.judge.interpret import launch_shapes, limits_of, run_case
    from components.judge.prepare import Job, buffers, cases, numbered_draw, parsed
    from components.judge.worker import code_hash
    from components.kernel.types import FormatNotApplicable, ProgramError

    entry, arch = task
    compiled = compile_program(entry.source, arch)
    module = load_ptx(compiled.ptx)
    rows = []
    for target in _TARGETS:
        job = Job(parsed(entry.source), sha256_text(entry.source), entry.operator, entry.width, FLOAT32, target, False)
        try:
            (case,) = cases(job)
        except (FormatNotApplicable, ProgramError):
            continue
        emulated = run_case(
            module, case, buffers(job, case, numbered_draw(job, case.matrix, 0)), limits_of(arch, 10**9, case)
        )
        if emulated.status != "ok":
            print(f"{entry.name} on {target.id}: {emulated.status} {emulated.message}", file=sys.stderr)
            continue
        shapes = launch_shapes(case, compiled.resources)
        rows.append(
            {
                "program": entry.name,
                "family": entry.family,
                "matrix": target.id,
                "operator": entry.operator,
                "width": entry.width,
                "code_hash": code_hash(compiled.ptx),
                "launches": [
                    {"shape": asdict(shape), "counts": asdict(counts)}
                    for shape, counts in zip(shapes, emulated.traffic, strict=True)
                ],
            }
        )
    return rows


# -- fit ------------------------------------------------------------------------------------------------------------

# (start, least, most) of each constant. L1, shared memory and shuffles take about what Luo et al. (arXiv:2402.13499)
# measured; shares and rates of published figures stay near them.
_RANGES: dict[str, tuple[float, float, float]] = {
    "launch_us": (1.1, 0.3, 3), "next_launch_us": (0.5, 0.05, 3), "l1_cycles": (36, 25, 60),
    "l2_share": (0.9, 0.5, 1.6), "stream_room": (0.06, 0.01, 0.8), "dram_share": (0.6, 0.1, 1.5),
    "line_cycles": (0.3, 0.01, 8), "sector_cycles": (1, 0.05, 8), "shared_cycles": (25, 20, 40),
    "bank_cycles": (2, 0.1, 8), "step_cycles": (2.5, 0.5, 8), "sync_cycles": (20, 15, 35),
    "barrier_cycles": (60, 10, 400), "tail": (0.5, 0.05, 1), "issue_cycles": (0.35, 0.2, 2),
    "lookup_cycles": (0.7, 0.1, 4), "fill_cycles": (1, 0.25, 4), "block_cycles": (120, 5, 600),
    "l2_rate": (0.9, 0.8, 1.5), "dram_rate": (0.88, 0.8, 1.0), "atomic_cycles": (1, 0.5, 50), "lost": (0.5, 0.01, 2),
    "norm": (2.5, 1, 8),
}  # fmt: skip


_PRIOR = 0.1  # weight of staying near the start: a constant that the pairs say nothing of stays there


def fitted(pairs: Pairs, chosen: Bools) -> Constants:
    """The constants that meet the chosen pairs best: soft-L1 loss of log ratios, every family with the same weight."""
    names = list(_RANGES)
    low, high = (np.log([_RANGES[name][side] for name in names]) for side in (1, 2))
    start = np.log([_RANGES[name][0] for name in names])
    counts = {name: int((pairs.family[chosen] == name).sum()) for name in np.unique(pairs.family[chosen])}
    weights = np.sqrt(chosen.sum() / len(counts) / np.array([counts[name] for name in pairs.family[chosen]]))

    def off(logs: Floats) -> Floats:
        k = Constants(**dict(zip(names, np.exp(logs), strict=True)))
        ratios = np.log(pairs.modelled(k) / pairs.time_us)[chosen] * weights
        return np.concatenate([ratios, _PRIOR * (logs - start)])

    answer = least_squares(off, start, bounds=(low, high), loss="soft_l1", f_scale=0.05, x_scale="jac", max_nfev=300)
    return Constants(**{name: float(f"{value:.4g}") for name, value in zip(names, np.exp(answer.x), strict=True)})


def fit(arguments: argparse.Namespace) -> None:
    """Fit the constants on half of the matrices and write how well they do on the others."""
    counters, measured = (load_table(path) for path in (arguments.counters, arguments.measured))
    table = join(counters, measured)
    pairs = read_pairs(table)
    held = held_out_matrices(pairs)
    test = np.isin(pairs.matrix, held)
    known = pairs.family != "outside"
    constants = fitted(pairs, ~test & known)
    modelled = pairs.modelled(constants)
    result: dict[str, Any] = {
        "measured": {name: measured.get(name) for name in ("arch", "compiler", "machine")},
        "counters": {name: counters.get(name) for name in ("arch", "compiler")},
        "pairs": len(pairs.program),
        "split": "constants fitted on every second matrix by median measured time, without `outside` kernels",
        "held_out_matrices": held,
        "constants": asdict(constants),
        "train": figures(pairs, modelled, ~test & known),
        "held_out": figures(pairs, modelled, test),
        "held_out_by_family": by_family(pairs, modelled, test),
        "train_by_family": by_family(pairs, modelled, ~test & known),
        "leave_one_family_out": left_out(pairs, test, known),
        "other_splits": other_splits(pairs, known),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_json(arguments.out / "model_fit.json", result)
    write_table(arguments.out / "model_pairs.json", table)
    print(json.dumps({name: result[name] for name in ("constants", "train", "held_out", "other_splits")}, indent=2))
    for name in ("held_out_by_family", "leave_one_family_out"):
        print(name)
        for family, found in result[name].items():
            short = {key: None if value is None else round(value, 3) for key, value in found.items()}
            print(f"  {family:15} {short}")


def check(arguments: argparse.Namespace) -> None:
    """Write how well the constants that the product ships do on pairs that they were not fitted on."""
    counters, measured = (load_table(path) for path in (arguments.counters, arguments.measured))
    table = join(counters, measured)
    pairs = read_pairs(table)
    modelled, known = pairs.modelled(), pairs.family != "outside"
    spmv = np.char.endswith(pairs.group, " spmv 1")
    result = {
        "measured": {name: measured.get(name) for name in ("arch", "compiler", "machine")},
        "pairs": len(pairs.program),
        "matrices": sorted(set(pairs.matrix.tolist())),
        "all": figures(pairs, modelled, np.ones_like(known)),
        "without_outside": figures(pairs, modelled, known),
        "spmv_without_outside": figures(pairs, modelled, known & spmv),
        "by_family": by_family(pairs, modelled, np.ones_like(known)),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_json(arguments.out / "model_check.json", result)
    write_table(arguments.out / "model_check_pairs.json", table)
    print(json.dumps({name: result[name] for name in ("all", "without_outside", "spmv_without_outside")}, indent=2))


def left_out(pairs: Pairs, test: Bools, known: Bools) -> dict[str, dict[str, float | int | None]]:
    """Each family on the held-out matrices, by constants fitted without it on the others."""
    found = {}
    for family in np.unique(pairs.family[known]):
        without = fitted(pairs, ~test & known & (pairs.family != family))
        found[str(family)] = figures(pairs, pairs.modelled(without), test & (pairs.family == family))
    return found


def other_splits(pairs: Pairs, known: Bools, count: int = 4) -> list[dict[str, float | int | None]]:
    """Figures on the held-out half of random halves of the matrices: how much the one that is quoted owes to chance."""
    found = []
    for seed in range(count):
        names = np.random.default_rng(seed).permutation(np.unique(pairs.matrix))
        test = np.isin(pairs.matrix, names[: len(names) // 2])
        found.append(figures(pairs, pairs.modelled(fitted(pairs, ~test & known)), test))
    return found


def write_table(path: Path, table: dict[str, Any]) -> None:
    """The table of pairs, a row a line."""
    parts = [f'"{name}": {json.dumps(table[name])}' for name in ("pairs_columns", "launches_columns")]
    for name in ("pairs", "launches"):
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in table[name])
        parts.append(f'"{name}": [\n{lines}\n]')
    write_text(path, "{" + ",\n".join(parts) + "}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, action in (("measure", measure), ("collect", collect)):
        command = commands.add_parser(name, help=action.__doc__)
        command.add_argument("--matrices", type=Path, required=True)
        command.add_argument("--programs", type=int, default=110, help="spmv programs, 0: all")
        command.add_argument("--spmm-programs", type=int, default=30, help="spmm programs, counted per width")
        command.add_argument("--limit", type=int, default=20, help="matrices")
        command.add_argument("--max-nnz", type=int, default=2_000_000)
        command.add_argument("--names", type=Path, help="take these matrices: group/name a line, or a file of measure")
        command.add_argument("--workers", type=int, default=0)
        command.add_argument("--out", type=Path, required=True)
        if name == "measure":
            command.add_argument("--backend", choices=("gpu", "emulator"), default="gpu")
        else:
            command.add_argument("--arch", default="sm_90")
        command.set_defaults(action=action)
    for name, action in (("fit", fit), ("check", check)):
        command = commands.add_parser(name, help=action.__doc__)
        command.add_argument("--counters", type=Path, required=True)
        command.add_argument("--measured", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True, help="folder")
        command.set_defaults(action=action)
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()
