"""How many programs that cheat or err get past the judge, and how many honest ones it stops.

    python benchmarks/judge_tamper.py [--backend emulator|gpu|auto] [--honest 320] [--out FILE]

Hostile programs are those of tests/judge/adversarial_suite; honest ones its hand-written variations of style and, up
to the number asked for, programs of the library's own families over all their parameters. Every one is judged on one
small friendly matrix, on which a program that is right nowhere else would look right. No cache is used.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from components.files import write_json  # noqa: E402
from components.judge.judge import Judge, JudgeRequest, resolve_backend  # noqa: E402
from components.judge.options import judge_defaults  # noqa: E402
from components.judge.sandbox import probe  # noqa: E402
from components.judge.verdict import Verdict  # noqa: E402
from tests.judge.adversarial_suite.base import TARGET  # noqa: E402
from tests.judge.adversarial_suite.programs import HOSTILE, honest_programs  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("emulator", "gpu", "auto"), default="auto")
    parser.add_argument("--honest", type=int, default=320)
    parser.add_argument("--workers", type=int, default=0, help="0: one per core")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--verbose", action="store_true", help="one line for each hostile program")
    arguments = parser.parse_args()
    settings = judge_defaults(backend=arguments.backend, cache=False, compile_cpu_s=3.0)
    backend, arch = resolve_backend(settings)
    start = time.monotonic()
    honest = honest_programs(arguments.honest)
    with Judge(settings, arch, backend, workers=arguments.workers or None) as judge:
        verdicts = judge.judge_many([JudgeRequest(h.source, TARGET, h.operator, h.width) for h in HOSTILE.values()])
        passed = judge.judge_many([JudgeRequest(h.source, TARGET, h.operator, h.width) for h in honest])
        compiler = judge.compiler
    named = dict(zip(HOSTILE, verdicts, strict=True))
    if arguments.verbose:
        for name, verdict in named.items():
            mark = " " if str(verdict.status) in HOSTILE[name].allowed else "!"
            print(f"{mark} {HOSTILE[name].kind:20} {name:40} {verdict.status}: {verdict.message[:110]}")
    alarms = [_alarm(h.name, v) for h, v in zip(honest, passed, strict=True) if not v.correct]
    result: dict[str, Any] = {
        "n_adversarial": len(named),
        "kinds": len({entry.kind for entry in HOSTILE.values()}),
        "escapes": sorted(name for name, verdict in named.items() if verdict.correct),
        "by_status": dict(sorted(Counter(str(verdict.status) for verdict in verdicts).items())),
        "unsupported": sorted(name for name, verdict in named.items() if verdict.status == "unsupported"),
        "unexpected": {
            name: [str(verdict.status), verdict.message]
            for name, verdict in named.items()
            if str(verdict.status) not in HOSTILE[name].allowed
        },
        "n_honest": len(honest),
        "honest_families": dict(Counter(h.family for h in honest)),
        "false_alarms": [alarm for alarm in alarms if alarm["status"] != "unsupported"],
        "honest_unsupported": [alarm for alarm in alarms if alarm["status"] == "unsupported"],
        "seconds": round(time.monotonic() - start, 1),
        "environment": {
            "backend": backend,
            "arch": arch,
            "gpu": next((v.gpu for v in passed if v.gpu), None),
            "compiler": compiler,
            "confinement": probe("compile").describe(),
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        write_json(arguments.out, result)
    sys.exit(1 if result["escapes"] else 0)


def _alarm(name: str, verdict: Verdict) -> dict[str, Any]:
    return {"name": name, "status": str(verdict.status), "message": verdict.message, "failed_on": verdict.failed_on}


if __name__ == "__main__":
    main()
