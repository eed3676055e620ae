import contextlib
import time

import pytest

from components.kernel.program import parse
from components.kernel.types import ProgramError

HEAD = "// format: csr index=u16\n// launch: spmv grid=ceil_div(rows,64) block=64\n"
KERNEL = 'extern "C" __global__ void spmv(const int* row_ptr, float* y, int rows) { }\n'


def _error(source: str) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        parse(source)
    return caught.value


def test_the_contract_is_read():
    program = parse(
        "// format: sell c=8\n// a free comment\n// launch: a grid=(rows, 2) block=32,4 shared=rows*4\n"
        "// launch: b grid=1 block=32\n\n"
        'extern "C" __global__ void a(float const *__restrict__ const values, /* in, out */ unsigned short col_idx[],\n'
        "   const float *x, float * y, int rows) {}\n"
        'extern "C" __global__ void __launch_bounds__(32) b(uint16_t* col_idx, unsigned int n, const int32_t* p) {}\n'
    )
    assert str(program.format) == "sell c=8 index=i32 sigma=1"
    first, second = program.launches
    assert (first.kernel, first.grid, first.block, first.shared, first.line) == (
        "a",
        ("rows", "2"),
        ("32", "4"),
        "rows*4",
        3,
    )
    assert (second.kernel, second.grid, second.shared, second.line) == ("b", ("1",), "0", 4)
    found = [(p.name, p.ctype, p.pointer, p.const, p.line) for p in program.kernels["a"]]
    assert found == [
        ("values", "float", True, True, 6),
        ("col_idx", "unsigned short", True, False, 6),
        ("x", "float", True, True, 7),
        ("y", "float", True, False, 7),
        ("rows", "int", False, False, 7),
    ]
    assert [p.ctype for p in program.kernels["b"]] == ["unsigned short", "unsigned int", "int"]


def test_crlf_and_a_kernel_without_parameters_are_fine():
    source = "// format: csr\r\n// launch: k grid=1 block=1\r\n" + 'extern "C" __global__ void k(void) {}\r\n'
    assert parse(source).kernels == {"k": ()}


@pytest.mark.parametrize(
    "source", ["", "Here is a kernel for you:\n```cuda\n```", "int main() {}", "__global__ void f() {}"]
)
def test_what_is_no_program_is_unparsable(source):
    assert _error(source).status == "unparsable"


@pytest.mark.parametrize(
    ("source", "line", "message"),
    [
        (HEAD.replace("csr", "csc") + KERNEL, 1, "unknown format 'csc'; expected one of csr, coo, sell, dia, bsr"),
        (HEAD.replace("index", "idx") + KERNEL, 1, "format csr has no parameter 'idx'; it takes index"),
        (HEAD.replace("u16", "u8") + KERNEL, 1, "index=u8; expected one of i32, u16"),
        (HEAD.replace("index=u16", "index=u16 index=i32") + KERNEL, 1, "given twice"),
        (HEAD.replace("index=u16", "u16") + KERNEL, 1, "expected key=value"),
        ("// format: csr\n" + HEAD + KERNEL, 2, "2 format lines; expected exactly one"),
        ("// format: csr\n" + KERNEL, 1, "no launch line"),
        ("// launch: spmv grid=1 block=1\n" + KERNEL, 1, "0 format lines"),
        (HEAD.replace("grid=ceil_div(rows,64) ", "") + KERNEL, 2, "without grid="),
        (HEAD.replace("block=64", "block=64 threads=2") + KERNEL, 2, "launch parameter 'threads'"),
        (HEAD.replace("block=64", "block=64 block=32") + KERNEL, 2, "block given twice"),
        (HEAD.replace("block=64", "block=1,2,3,4") + KERNEL, 2, "4 dimensions"),
        (HEAD.replace("rows,64", "rows") + KERNEL, 2, "ceil_div takes 2 arguments"),
        (HEAD.replace("spmv", "spmm") + KERNEL, 2, "launch of spmm; the program defines spmv"),
        (HEAD.replace("spmv grid", "grid") + KERNEL, 2, "expected a kernel's name"),
        (HEAD + 'extern "C" __global__ int spmv() {}', 3, 'expected extern "C" __global__ void NAME'),
        (HEAD + "template <int N> __global__ void spmv() {}", 3, 'expected extern "C" __global__ void NAME'),
        (HEAD + KERNEL + KERNEL, 4, "kernel spmv defined twice"),
        (HEAD + KERNEL.replace("int rows", "int rows = 3"), 3, "default value"),
        (HEAD + KERNEL.replace("float* y", "float** y"), 3, "expected TYPE NAME or TYPE* NAME"),
        (HEAD + KERNEL.replace("float* y", "float* y[]"), 3, "pointer to a pointer"),
        (HEAD + KERNEL.replace("float* y", "struct s y"), 3, "type 'struct s' of parameter y"),
        (HEAD + KERNEL.replace("float* y", "ARGS"), 3, "has no name"),
        (HEAD + KERNEL.replace("int rows", "int y"), 3, "parameter y declared twice"),
        (HEAD + KERNEL[:-8], 3, "without its closing parenthesis"),
    ],
)
def test_contract_errors_carry_the_line(source, line, message):
    error = _error(source)
    assert (error.status, error.line) == ("contract", line)
    assert message in error.message


@pytest.mark.parametrize(
    "text",
    [
        '#include "/etc/hostname"',
        "#  include </etc/hostname>",
        '%:include "/etc/hostname"',
        '??=include "/etc/hostname"',
        '#inc\\\nlude "/etc/hostname"',
        '#inc\\ \nlude "/etc/hostname"',
        '/* x */ #include "/etc/hostname"',
        '#/**/include/**/"/etc/hostname"',
        '#define H "/etc/hostname"\n#include H',
        "#include_next <stdint.h>",
        '#embed "/etc/hostname"',
        '#if __has_include("/etc/hostname")\n#endif',
        '#import "x"',
        'R"(\n)" ;\n#include "/etc/hostname"',
        'const char* a = "//";\n#include "/etc/hostname"',
        'char c = \'"\';\n#include "/etc/hostname"',
        '#include "cuda_fp16.h/../../etc/hostname"',
        '#include "../stdint.h"',
        '#if 0\n#include "/etc/hostname"\n#endif',
        '__device__ int a = 1\'0 + \'"\'; __device__ const char* s = "/*";\n#include "/etc/hostname"\n'
        '__device__ const char* t = "*/";',
        '// comment\r#include "/etc/hostname"',
        '#define A(x, y) x##y\n__device__ void f() { A(as, m)("exit;"); }',
        '__device__ void f() { \\u0061sm("exit;"); }',
        "#define int long long",
        "#define rows a, int extra",
        "#define spmv other",
        "#line 1",
        "#pragma GCC poison x",
        '_Pragma("once")',
        'asm("mov.u32 %0, %clock;" : "=r"(x));',
        "__device__ long long t() { return clock64 (); }",
        "__managed__ int m;",
        '__device__ void p() { printf("x"); }',
        "import std;",
        "int a; \x00",
        "int a; \x0c",
        '#/*\n*/include "/etc/hostname"',
        '/* a\n*/ # /* b\nc */ include "/etc/hostname"',
        '%:/*\n*/ /*\n\n*/include "/etc/hostname"',
        "#define A ' /*\n # include \"/etc/hostname\"\n#define B */ '",
        '#define A " /*\n # include "/etc/hostname"\n#define B */ "',
        "#if 0\n don't /*\n#endif\n#include \"/etc/hostname\"\n#if 0\n*/ don't\n#endif",
        "#define A 0x'/*\n#include \"/etc/hostname\"\n#define B */'",
        'const char* s = "no end;',
        'const char* s = "escaped \\";',
        '\ufeff#include "/etc/hostname"',
        'int a;\u0085#include "/etc/hostname"',
        'int a;\u2028#include "/etc/hostname"',
        "// \ud800",
        "// " + "x" * 17_000,
    ],
)
def test_evasions_never_reach_the_compiler(text):
    error = _error(HEAD + text + "\n" + KERNEL)
    assert error.status == "contract"
    assert "hostname" not in error.message


@pytest.mark.parametrize(
    "text",
    [
        "#include <cuda_fp16.h>",
        "#define A 1\n#if A\n#endif",
        'const char* s = "#include";',
        '// #include "/etc/hostname"\nint a;',
        "/*\n#include x\n*/",
        "/* don't\n * worry */ // it's \"fine\n#define A 'x' // don't",
        "__device__ const char* s = \"it's\"; __device__ char c = '\"', d = '\\'', e = '/';",
        "#define TILE 32 /* rows */\n/* of\n a block */ #define WIDE 64",
        "__device__ int big = 1'000'000;",
        "__device__ float clocked(float imported) { return imported; }",
    ],
)
def test_harmless_text_passes(text):
    assert set(parse(HEAD + text + "\n" + KERNEL).kernels) == {"spmv"}


def test_non_ascii_comments_pass():
    assert parse(HEAD + "// Σ über Zeilen\n" + KERNEL).format.get("index") == "u16"


@pytest.mark.parametrize(
    "source",
    [
        HEAD + 'extern "C" __global__ void spmv(int' + " " * 15_000 + "! y) {}",
        HEAD + 'extern "C" __global__ void spmv(int* ' + "const" * 2_800 + "! y) {}",
        HEAD + "\n" * 15_000 + KERNEL,
        HEAD + " \n" * 7_500 + KERNEL,
        "// format: csr" + " " * 15_000 + "x\n// launch: spmv grid=1 block=1\n" + KERNEL,
        HEAD + "a" * 15_000 + "\n" + KERNEL,
        HEAD + "1'" * 7_000 + "\n" + KERNEL,
        HEAD + '"\\' * 7_000 + "\n" + KERNEL,
        HEAD + "' /*" * 3_500 + "\n" + KERNEL,
        HEAD + "/**/" * 3_500 + "\n" + KERNEL,
    ],
)
def test_no_text_keeps_the_parser_busy(source):
    start = time.perf_counter()
    with contextlib.suppress(ProgramError):
        parse(source)
    assert time.perf_counter() - start < 0.5
