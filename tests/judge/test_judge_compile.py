import time

import pytest

from components.errors import UserError
from components.judge.compile import (
    CompileError,
    Resources,
    check_architecture,
    compile_program,
    compiler_version,
    known_architectures,
    read_resources,
)
from components.judge.headers import OWN_HEADERS, TOOLKIT_HEADERS, unknown_include
from components.judge.worker import code_hash
from components.kernel.sanitize import ALLOWED_HEADERS

SCALE = """extern "C" __global__ void scale(const float* x, float* y, int n) {
  __shared__ float tile[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x & 63] = i < n ? x[i] : 0.f;
  __syncthreads();
  if (i < n) y[i] = 2.f * tile[(threadIdx.x & 63) ^ 1];
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_compiles_for_every_modelled_architecture(arch: str) -> None:
    compiled = compile_program(SCALE, arch)
    assert f".target {arch}" in compiled.ptx
    assert ".loc" in compiled.ptx  # lines of the source, for messages
    assert compiled.cubin.startswith(b"\x7fELF")
    used = compiled.resources["scale"]
    assert used.shared_bytes == 256
    assert used.spill_bytes == 0
    assert 4 <= used.registers <= 32


def test_names_the_first_error_and_its_line() -> None:
    with pytest.raises(CompileError, match='identifier "undefined_name" is undefined') as caught:
        compile_program(SCALE.replace("2.f *", "undefined_name *"), "sm_90")
    assert caught.value.line == 6


def test_a_syntax_error_has_a_line_too() -> None:
    with pytest.raises(CompileError) as caught:
        compile_program(SCALE.replace("__syncthreads();", "__syncthreads(;"), "sm_90")
    assert caught.value.line == 5


def test_no_message_carries_text_of_another_file(tmp_path: object) -> None:
    secret = f"{tmp_path}/secret.txt"
    with open(secret, "w", encoding="utf-8") as file:
        file.write("hunter2 secret words\n")
    for directive in (f'#include "{secret}"', f"#include <{secret}>", f'#  include /* x */ "{secret}"'):
        with pytest.raises(CompileError) as caught:
            compile_program(f"{directive}\n{SCALE}", "sm_90")
        assert "hunter2" not in caught.value.message
        assert caught.value.line == 1


def test_an_include_is_found_behind_comments_and_quotes_and_not_inside_a_comment() -> None:
    assert unknown_include('#/*\n*/include "x"\n') == (2, "x")
    assert unknown_include("int a;\n/* b\n*/ # /* c */ include <x>\n") == (3, "x")
    assert unknown_include("#define A ' /*\n#include <x>\n#define B */ '\n") == (2, "x")
    assert unknown_include('#inc\\\nlude "x"\n') == (1, "x")
    assert unknown_include("#define H <x>\n#include H\n") == (2, "H")
    assert unknown_include("/*\n#include <x>\n*/\n// #include <y>\n#include <stdint.h>\n") is None
    assert compile_program(f"/* was:\n#include <cub/cub.cuh>\n*/\n{SCALE}", "sm_90").resources
    start = time.process_time()
    for text in ("/**/" * 4_000, "\n" * 16_000, "/*" * 8_000, "# \n" * 5_000, "' /*" * 4_000):
        assert unknown_include(text) is None
    assert time.process_time() - start < 5.0


def test_every_allowed_header_is_there() -> None:
    assert set(ALLOWED_HEADERS) <= {*OWN_HEADERS, *TOOLKIT_HEADERS}
    for name in sorted(ALLOWED_HEADERS):
        assert compile_program(f"#include <{name}>\n{SCALE}", "sm_90").resources


def test_half_precision_headers_work() -> None:
    source = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void f(const __half* a, const __nv_bfloat16* b, float* y) {
  y[0] = __half2float(__hadd(a[0], a[1])) + __bfloat162float(b[0]);
}
"""
    assert "f" in compile_program(source, "sm_90").resources


def test_own_integer_types() -> None:
    source = '#include <cstdint>\nextern "C" __global__ void f(uint64_t* y) { y[0] = (int16_t)70000; }\n'
    assert "f" in compile_program(source, "sm_90").resources


def test_spills_are_counted() -> None:
    source = """extern "C" __global__ void __launch_bounds__(1024, 2) f(float* y, const float* x, int n) {
  float a[64];
  for (int i = 0; i < 64; i++) a[i] = x[i * threadIdx.x];
  for (int k = 0; k < n; k++)
    for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i * 7 + 1) % 64] + x[k * i];
  float t = 0;
  for (int i = 0; i < 64; i++) t += a[i];
  y[threadIdx.x] = t;
}
"""
    used = compile_program(source, "sm_90").resources["f"]
    assert used.spill_bytes > 0
    assert used.registers == 32


def test_reads_what_ptxas_prints() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'g' for 'sm_80'
ptxas info    : Function properties for g
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 360 bytes cmem[0]
ptxas info    : Compiling entry function 'h' for 'sm_80'
ptxas         .     640 bytes stack frame, 948 bytes spill stores, 1196 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 640 bytes cumulative stack size, 272 bytes smem, 372 bytes cmem[0]
"""
    assert read_resources(log) == {"g": Resources(12, 0, 0), "h": Resources(32, 948 + 1196, 272)}
    with pytest.raises(ValueError, match="expected registers"):
        read_resources("ptxas info : Compiling entry function 'g' for 'sm_80'\n")


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'sm_61'.*sm_90"):
        check_architecture("sm_61")
    assert {"sm_80", "sm_90", "sm_100"} <= set(known_architectures())
    assert compiler_version().startswith("nvrtc ")


def test_programs_that_differ_in_text_alone_have_one_code_hash() -> None:
    renamed = "// a comment\n" + SCALE.replace("tile", "part").replace("2.f * part", "part")
    same = "// a comment\n\n" + SCALE.replace("const int i =", "const int  i   =")
    base = code_hash(compile_program(SCALE, "sm_90").ptx)
    assert code_hash(compile_program(same, "sm_90").ptx) == base
    assert code_hash(compile_program(renamed, "sm_90").ptx) != base
