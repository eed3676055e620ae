"""Every device function of cuda_fp16.h and cuda_bf16.h compiles to PTX that the interpreter loads."""

import re

import pytest

from components.judge.compile import compile_program
from components.judge.emulate.machine import load_ptx
from components.judge.headers import headers_for

INCLUDES = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
DECLARATION = re.compile(
    r"__CUDA_(?:HOSTDEVICE_)?(?:FP16|BF16)_DECL__\s+([\w ]+?)\s*\b(\w+)\s*\(([^)]*)\)\s*;", re.MULTILINE
)


def declared() -> list[tuple[str, str, tuple[str, ...]]]:
    """(result, name, types of the arguments) of each function, once."""
    headers = headers_for(INCLUDES)
    text = "".join(text for name, text in headers.items() if "fp16" in name or "bf16" in name)
    found = {}
    for result, name, arguments in DECLARATION.findall(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)):
        kinds = []
        for argument in arguments.split(","):
            plain = argument.split("=")[0].strip()
            if plain not in ("", "void"):
                kind = re.sub(r"\w+$", "", plain).strip()
                kinds.append(kind if "*" in kind else re.sub(r"\bconst\b", "", kind).strip())
        found[name, tuple(kinds)] = (re.sub(r"\bconst\b", "", result).strip(), name, tuple(kinds))
    return list(found.values())


def kernel(number: int, result: str, name: str, kinds: tuple[str, ...]) -> str:
    """A kernel that calls one function on what it loads."""
    values = [f"({k})p.v[{i}]" if "*" in k else f"(({k}*)p.v[{i}])[threadIdx.x]" for i, k in enumerate(kinds)]
    call = f"{name}({', '.join(values)});"
    store = "" if result == "void" else f"(({result}*)p.v[7])[threadIdx.x] = "
    return f'extern "C" __global__ void k{number}(P p) {{ {store}{call} }}\n'


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_every_function_of_the_half_headers_loads(arch: str) -> None:
    functions = declared()
    assert len(functions) > 400
    numbered = list(enumerate(functions))
    for start in range(0, len(numbered), 32):
        group = numbered[start : start + 32]
        source = INCLUDES + "struct P { void* v[8]; };\n" + "".join(kernel(k, *function) for k, function in group)
        assert len(load_ptx(compile_program(source, arch).ptx).entries) == len(group)
