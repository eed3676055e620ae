"""What a worker process does: compile one program, or check a compiled one on its matrices with the interpreter.

Requests and answers are plain JSON types (components/judge/wire.py). `announce` tells the judge which stage a worker
is at, so that a worker that dies names what killed it.
"""

import base64
import hashlib
import io
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from components.judge.adversarial import adversarial_matrices
from components.judge.compile import CompileError, Resources, compile_program, compiler_version
from components.judge.headers import preload_headers
from components.judge.interpret import check, preload_interpreter
from components.judge.limits import limits
from components.judge.model_time import ARCHITECTURES
from components.judge.prepare import job_of, parsed
from components.judge.ptx_policy import check_ptx
from components.kernel.operators import OPERATORS
from components.kernel.types import KernelProgram, ProgramError

_NICE = 5  # the GPU's executor, for which workers compile, comes first


def preload() -> None:
    """Import and warm everything that a worker needs, before the first fork."""
    os.nice(_NICE)
    kept = os.environ.get("SPARSERL_HEADERS")
    version = "".join(character if character.isalnum() else "-" for character in compiler_version())
    preload_headers(Path(kept) / f"{version}.json" if kept else None)
    preload_interpreter()
    _rehearse()


def _rehearse() -> None:
    """Compile and check a program once: what is imported, loaded or computed on the way is there for every worker.

    A worker can open no file but the matrices handed to it (components/judge/sandbox.py), so whatever is loaded late
    must be loaded here.
    """
    stored = io.BytesIO()
    np.savez(stored, shape=np.zeros(2, np.int64))
    stored.seek(0)
    with np.load(stored) as data:
        assert len(data["shape"]) == 2
    (matrix,) = (case for case in adversarial_matrices("spmv", 1) if case.name == "tridiagonal")
    source = OPERATORS["spmv"].reference_program(matrix, 1)
    arch = next(iter(ARCHITECTURES))
    limit = {"cpu_s": 60.0, "memory_mb": None, "arch": arch, "source": source}
    compiled = handle({"op": "compile", **limit}, lambda stage: None)
    check_request = {
        **limit,
        **compiled,
        "op": "check",
        "operator": "spmv",
        "width": 1,
        "precision": "float32",
        "matrix": None,
        "adversarial": True,
        "limits": {"instructions": 10_000_000, "per_nonzero": 4_000},
    }
    answer = handle(check_request, lambda stage: None)
    if answer["status"] != "correct":
        raise RuntimeError(f"the judge is broken: its own program is {answer['status']} {answer['message']}")


def handle(request: dict[str, Any], announce: Callable[[str], None]) -> dict[str, Any]:
    """Answer one request; never raises for anything that a program can be guilty of."""
    if request["op"] == "compile":
        return _compile(request, announce)
    if request["op"] == "check":
        return _check(request, announce)
    raise ValueError(f"unknown request {request['op']!r}")


def _compile(request: dict[str, Any], announce: Callable[[str], None]) -> dict[str, Any]:
    announce("parse")
    source = request["source"]
    try:
        program = parsed(source)
    except ProgramError as error:
        return {"status": error.status, "message": error.message, "line": error.line}
    announce("compile")
    start = time.perf_counter()
    try:
        with limits(request["cpu_s"], request["memory_mb"]):
            compiled = compile_program(source, request["arch"])
    except CompileError as error:
        return {"status": "compile_error", "message": error.message, "line": error.line}
    missing = [launch.kernel for launch in program.launches if launch.kernel not in compiled.resources]
    if missing:
        message = f"kernel {missing[0]} is not in the compiled code; is it inside a namespace or a condition?"
        return {"status": "contract", "message": message, "line": None}
    if (violation := check_ptx(compiled.ptx)) is not None:
        return {"status": "tampered", "message": violation.message, "line": violation.line}
    return {
        "status": "compiled",
        "ptx": compiled.ptx,
        "cubin": base64.b64encode(compiled.cubin).decode() if request.get("cubin", True) else None,
        "code_hash": code_hash(compiled.ptx),
        "contract_hash": contract_hash(program),
        "resources": {
            name: [used.registers, used.spill_bytes, used.shared_bytes] for name, used in compiled.resources.items()
        },
        "compiler": compiled.compiler,
        "compile_ms": (time.perf_counter() - start) * 1e3,
    }


def _check(request: dict[str, Any], announce: Callable[[str], None]) -> dict[str, Any]:
    announce("check")
    job = job_of(request)
    with limits(request["cpu_s"], None):
        return check(job, request["ptx"], resources_of(request), request["arch"], request["limits"])


def resources_of(request: dict[str, Any]) -> dict[str, Resources]:
    """Resources by kernel, as `_compile` answered them."""
    return {name: Resources(*numbers) for name, numbers in request["resources"].items()}


def contract_hash(program: KernelProgram) -> str:
    """SHA-256 of what is not in the code but decides what it does: format, launches, and the parameters by name."""
    parts = [str(program.format)]
    parts += [f"{launch.kernel} {launch.grid} {launch.block} {launch.shared}" for launch in program.launches]
    for kernel, parameters in sorted(program.kernels.items()):
        parts.append(f"{kernel} {[(p.name, p.ctype, p.pointer, p.const) for p in parameters]}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def code_hash(ptx: str) -> str:
    """SHA-256 of the instructions alone: no line table, comments or blank space, so that only code tells apart."""
    code = re.sub(r"\.section\s+\.debug\w*\s*\{.*?\n\}", "", ptx, flags=re.DOTALL)
    kept = []
    for line in code.splitlines():
        text = line.split("//")[0].strip()
        if text and not text.startswith((".loc", ".file")):
            kept.append(re.sub(r"\s+", " ", text))
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()
