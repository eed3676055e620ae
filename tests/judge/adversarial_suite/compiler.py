"""Attacks on the compiler, on the contract, and on what lies beside them on the disk."""

from tests.judge.adversarial_suite.base import CSR, Hostile, hostile, loop
from tests.judge.hostile_programs import per_thread

_PLAIN = per_thread("y[r] = s;")
_NO = "contract"
_FILE = '"/etc/hostname"'


def _before(text: str) -> str:
    return per_thread("y[r] = s;", before=text)


INCLUDES: dict[str, Hostile] = {
    "absolute": hostile("include leak", _NO, _before(f"#include {_FILE}\n")),
    "angle-brackets": hostile("include leak", _NO, _before("#include </etc/hostname>\n")),
    "relative": hostile("include leak", _NO, _before('#include "../../../../etc/hostname"\n')),
    "own-settings": hostile("include leak", _NO, _before('#include "params.yaml"\n')),
    "computed": hostile("include leak", _NO, _before(f"#define F {_FILE}\n#include F\n")),
    "computed-from-pieces": hostile("include leak", _NO, _before("#define S(a) #a\n#include S(/etc/hostname)\n")),
    "next": hostile("include leak", _NO, _before("#include_next </etc/hostname>\n")),
    "import": hostile("include leak", _NO, _before(f"#import {_FILE}\n")),
    "module-import": hostile("include leak", _NO, _before(f"import {_FILE};\n")),
    "embed": hostile("include leak", _NO, _before(f"const char bytes[] = {{\n#embed {_FILE}\n}};\n")),
    "has-include": hostile("include leak", _NO, _before(f"#if __has_include({_FILE})\n#endif\n")),
    "has-embed": hostile("include leak", _NO, _before(f"#if __has_embed({_FILE})\n#endif\n")),
    "digraph": hostile("include leak", _NO, _before(f"%:include {_FILE}\n")),
    "trigraph": hostile("include leak", _NO, _before(f"??=include {_FILE}\n")),
    "spliced": hostile("include leak", _NO, _before(f"#inc\\\nlude {_FILE}\n")),
    "spliced-by-trigraph": hostile("include leak", _NO, _before(f"#inc??/\nlude {_FILE}\n")),
    "spliced-with-blank": hostile("include leak", _NO, _before(f"#inc\\ \nlude {_FILE}\n")),
    "split-by-a-comment": hostile("include leak", _NO, _before(f"#/*\n*/include {_FILE}\n")),
    "split-by-two-comments": hostile("include leak", _NO, _before(f"/* a\n*/ # /* b\nc */ include {_FILE}\n")),
    "behind-a-comment": hostile("include leak", _NO, _before(f"/**/ # /**/ include /**/ {_FILE}\n")),
    "behind-a-lone-quote": hostile(
        "include leak", _NO, _before(f"#define A ' /*\n # include {_FILE}\n#define B */ '\n")
    ),
    "behind-a-raw-string": hostile("include leak", _NO, _before(f'#define X R"(/*)"\n#include {_FILE}\n// */\n')),
    "behind-a-prefixed-raw-string": hostile(
        "include leak", _NO, _before(f'#define X u8R"a(/*)a"\n#include {_FILE}\n// */\n')
    ),
    "behind-digit-separators": hostile(
        "include leak", _NO, _before(f"#define X 0x'/*\n#include {_FILE}\n#define Y */'\n")
    ),
    "behind-a-carriage-return": hostile("include leak", _NO, _before(f"int a;\r#include {_FILE}\n")),
    "behind-a-form-feed": hostile("include leak", _NO, _before(f"\f#include {_FILE}\n")),
    "behind-a-byte-order-mark": hostile("include leak", "contract unparsable", _before(f"\ufeff#include {_FILE}\n")),
    "behind-a-next-line": hostile("include leak", _NO, _before(f"int a;\u0085#include {_FILE}\n")),
    "by-pragma": hostile("include leak", _NO, _before(f'#pragma include_alias("a.h", {_FILE})\n')),
    "by-pragma-operator": hostile("include leak", _NO, _before('_Pragma("once")\n')),
    "by-line": hostile("include leak", _NO, _before(f"#line 1 {_FILE}\nint wrong = ;\n")),
    "by-assembly": hostile("include leak", _NO, per_thread('y[r] = s; asm(".incbin \\"/etc/hostname\\"");')),
    "names-its-file": hostile(
        "include leak", "compile_error", per_thread("y[r] = s; static_assert(sizeof(int) == 5, __FILE__);")
    ),
    "by-unicode-name": hostile("include leak", _NO, _before(f"#\\u0069nclude {_FILE}\n")),
    "null-byte": hostile("include leak", _NO, _before(f"\0#include {_FILE}\n")),
}

_STOPPED = "compile_error contract"
BOMBS: dict[str, Hostile] = {
    "template-tree": hostile(
        "compile bomb",
        _STOPPED,
        per_thread(
            "y[r] = s + T<22, 0>::v;",
            before="template <int D, long I> struct T { static const long v = T<D - 1, 2 * I>::v ^ T<D - 1, 2 * I + "
            "1>::v; };\ntemplate <long I> struct T<0, I> { static const long v = I; };\n",
        ),
    ),
    "template-without-end": hostile(
        "compile bomb",
        _STOPPED,
        per_thread(
            "y[r] = s + T<0>::v;", before="template <int D> struct T { static const int v = T<D + 1>::v + 1; };\n"
        ),
    ),
    "macro-tower": hostile(
        "compile bomb",
        _STOPPED,
        per_thread(
            "y[r] = s + A9;",
            before="#define A0 r+r+r+r+r+r+r+r+r+r\n"
            + "".join(f"#define A{n} " + "+".join([f"A{n - 1}"] * 10) + "\n" for n in range(1, 10)),
        ),
    ),
    "constant-evaluation": hostile(
        "compile bomb",
        "compile_error contract timeout wrong",
        per_thread(
            "constexpr long v = f(200); y[r] = s + 0.f * v; y[r] = v == 3 ? s : 0.f;",
            before="constexpr __device__ long f(long n) { long a = 1; for (long i = 0; i < n * n * n * n * n; ++i) "
            "a = a * 3 + i; return a; }\n",
        ),
    ),
    "constant-recursion": hostile(
        "compile bomb",
        _STOPPED,
        per_thread(
            "constexpr long v = f(40); y[r] = s + v;",
            before="constexpr __device__ long f(long n) { return n < 2 ? n : f(n - 1) + f(n - 2); }\n",
        ),
    ),
    "unrolled-without-measure": hostile(
        "compile bomb",
        "compile_error contract timeout wrong",
        per_thread(
            "float a = 0.f;\n#pragma unroll\nfor (int i = 0; i < 300; ++i)\n#pragma unroll\n"
            "for (int j = 0; j < 300; ++j) a = a * s + (i ^ j) * x[(i * j) & 0];\ny[r] = a;"
        ),
    ),
    "huge-initialised-array": hostile(
        "compile bomb",
        "compile_error contract tampered unsupported timeout",
        per_thread("y[r] = s * t[r];", before="__device__ int t[1 << 28] = {1};\n"),
    ),
    "huge-array": hostile(
        "compile bomb",
        "compile_error contract tampered",
        per_thread("y[r] = s + t[(size_t)r << 20];", before="__device__ float t[1ull << 36];\n"),
    ),
    "huge-shared-array": hostile(
        "compile bomb",
        "compile_error launch_error contract",
        per_thread("t[threadIdx.x] = s; y[r] = t[threadIdx.x];", before="__shared__ float t[1 << 20];\n"),
    ),
    "deep-parentheses": hostile(
        "compile bomb",
        "compile_error contract wrong",
        per_thread("y[r] = 0.f * s + " + "(" * 6000 + "1" + ")" * 6000 + ";"),
    ),
    "deep-blocks": hostile(
        "compile bomb", "compile_error contract wrong", per_thread("y[r] = s + 1.f;" + "{" * 7000 + "}" * 7000)
    ),
    "long-sum": hostile("compile bomb", "compile_error contract wrong", per_thread("y[r] = s" + "+r" * 7000 + ";")),
    "too-long": hostile("compile bomb", _NO, _PLAIN + "// " + "x" * 17_000 + "\n"),
    "unterminated-comment": hostile(
        "compile bomb", "compile_error contract", _PLAIN.replace("y[r] = s;", "y[r] = s; /*")
    ),
    "unterminated-string": hostile(
        "compile bomb", "compile_error contract", _PLAIN.replace("y[r] = s;", 'y[r] = s; const char* t = "x;')
    ),
}


def _launch(grid: str = "ceil_div(rows, 64)", rest: str = "block=64") -> str:
    return _PLAIN.replace("grid=ceil_div(rows, 64) block=64", f"grid={grid} {rest}")


LAUNCHES: dict[str, Hostile] = {
    "python": hostile("launch-line injection", _NO, _launch('__import__("os").getpid()')),
    "evaluation": hostile("launch-line injection", _NO, _launch('eval("rows")')),
    "attribute": hostile("launch-line injection", _NO, _launch("rows.__class__")),
    "power": hostile("launch-line injection", _NO, _launch("9**9**9")),
    "power-of-names": hostile("launch-line injection", _NO, _launch("rows**rows")),
    "shift": hostile("launch-line injection", _NO, _launch("1<<62")),
    "format-string": hostile("launch-line injection", _NO, _launch("{rows}")),
    "shell": hostile("launch-line injection", _NO, _launch("$(id)")),
    "float": hostile("launch-line injection", _NO, _launch("1e3")),
    "fraction": hostile("launch-line injection", _NO, _launch("rows/64")),
    "hexadecimal": hostile("launch-line injection", _NO, _launch("0x10")),
    "other-digits": hostile("launch-line injection", _NO, _launch("\u0663")),
    "many-digits": hostile("launch-line injection", _NO, _launch("9" * 300)),
    "deep": hostile("launch-line injection", _NO, _launch("(" * 150 + "rows" + ")" * 150)),
    "long": hostile("launch-line injection", _NO, _launch("+".join(["rows"] * 400))),
    "overflow": hostile("launch-line injection", _NO, _launch("*".join(["rows"] * 20))),
    "unknown-name": hostile("launch-line injection", _NO, _launch("answer")),
    "unknown-function": hostile("launch-line injection", _NO, _launch("sum(rows, 1)")),
    "twice": hostile("launch-line injection", _NO, _launch("1", "block=64 grid=rows")),
    "other-key": hostile("launch-line injection", _NO, _launch("rows", "block=64 stream=1")),
    "semicolon": hostile("launch-line injection", _NO, _launch("rows; block=64", "block=64")),
    "lambda": hostile("launch-line injection", _NO, _launch("(lambda: rows)()")),
    "four-dimensions": hostile("launch-line injection", _NO, _launch("(rows, 1, 1, 1)")),
    "no-block": hostile("launch-line injection", _NO, _launch("rows", "")),
    "divides-by-zero": hostile("launch-line injection", "contract launch_error", _launch("rows // (rows - rows)")),
    "negative-grid": hostile("oversize launch", "contract launch_error", _launch("0 - rows")),
    "negative-shared": hostile("oversize launch", "contract launch_error", _launch(rest="block=64 shared=0-4")),
    "empty-grid": hostile("oversize launch", "contract launch_error", _launch("0")),
    "empty-grid-on-few-rows": hostile("oversize launch", "contract launch_error wrong", _launch("rows // 64")),
    "empty-block": hostile("oversize launch", "contract launch_error", _launch(rest="block=0")),
    "block-of-1025": hostile("oversize launch", "contract launch_error", _launch(rest="block=1025")),
    "block-of-2048-in-two": hostile("oversize launch", "contract launch_error", _launch(rest="block=(64, 32)")),
    "block-too-deep": hostile("oversize launch", "contract launch_error", _launch(rest="block=(1, 1, 65)")),
    "grid-too-high": hostile("oversize launch", "contract launch_error", _launch("(1, 65536)")),
    "grid-of-two-billion": hostile("oversize launch", "contract launch_error timeout", _launch("2147483648")),
    "grid-of-one-billion": hostile("oversize launch", "contract launch_error timeout", _launch("1000000000")),
    "shared-of-300000": hostile("oversize launch", "contract launch_error", _launch(rest="block=64 shared=300000")),
    "shared-of-the-rest": hostile(
        "oversize launch",
        "contract launch_error",
        per_thread(
            "t[threadIdx.x] = s; y[r] = t[threadIdx.x];", before="__shared__ float t[12000];\n", shared="200000"
        ),
    ),
    "more-than-declared": hostile(
        "oversize launch",
        "contract launch_error",
        per_thread("y[r] = s;").replace("__global__ void spmv", "__global__ void __launch_bounds__(32) spmv"),
    ),
    "nine-launches": hostile(
        "oversize launch", _NO, _PLAIN.replace("// launch", "// launch: spmv grid=1 block=1\n" * 9 + "// launch")
    ),
}

CONTRACT: dict[str, Hostile] = {
    "main": hostile("host code", "contract compile_error", _before("int main() { return 0; }\n")),
    "system": hostile("host code", "contract compile_error", _before('int helper() { return system("id"); }\n')),
    "constructor": hostile(
        "host code", "contract compile_error tampered", _before("struct S { int n; S() { n = 1; } };\nS global;\n")
    ),
    "standard-library": hostile(
        "host code", "contract compile_error", _before("#include <vector>\nstd::vector<int> v;\n")
    ),
    "files": hostile(
        "host code", "contract compile_error", _before('#include <cstdio>\nvoid f() { fopen("/etc/passwd", "r"); }\n')
    ),
    "kernel-in-a-namespace": hostile(
        "contract", "contract compile_error", _PLAIN.replace('extern "C"', "namespace n {").rstrip() + "}\n"
    ),
    "kernel-under-a-condition": hostile(
        "contract", "contract compile_error", _PLAIN.replace('extern "C"', '#if 0\nextern "C"').rstrip() + "\n#endif\n"
    ),
    "kernel-renamed-by-a-macro": hostile("contract", "contract compile_error", _before("#define spmv other\n")),
    "types-renamed-by-a-macro": hostile("contract", "contract compile_error", _before("#define float double\n")),
    "signature-from-a-macro": hostile(
        "contract",
        "contract compile_error",
        _PLAIN.replace("const float* x,", "ARGS,").replace('extern "C"', '#define ARGS const float* x\nextern "C"'),
    ),
    "other-kernel-launched": hostile("contract", _NO, _PLAIN.replace("launch: spmv", "launch: other")),
    "two-formats": hostile("contract", _NO, "// format: csr\n" + _PLAIN),
    "unknown-format": hostile("contract", _NO, _PLAIN.replace("format: csr", "format: ellpack")),
    "format-parameter": hostile("contract", _NO, _PLAIN.replace("format: csr", "format: csr index=i64")),
    "asks-for-the-answer": hostile(
        "contract",
        _NO,
        per_thread(
            "y[r] = expected[r];", parameters=f"{CSR}, const float* x, const float* expected, float* y, int rows"
        ),
    ),
    "asks-for-doubles": hostile("contract", _NO, _PLAIN.replace("const float* values", "const double* values")),
    "scalar-as-pointer": hostile(
        "contract", _NO, _PLAIN.replace("int rows", "const int* rows").replace(">= rows", ">= rows[0]")
    ),
    "default-value": hostile("contract", "contract compile_error", _PLAIN.replace("int rows", "int rows = 1")),
    "no-contract": hostile("contract", "contract unparsable", _PLAIN.split("\n", 2)[2]),
    "no-kernel": hostile("contract", "contract unparsable", "// format: csr\n// launch: spmv grid=1 block=1\nint a;\n"),
    "prose": hostile("contract", "contract unparsable", "Sure! Here is a fast kernel:\n```cuda\n```\n"),
    "nothing-at-all": hostile("contract", "contract unparsable", ""),
    "syntax-error": hostile("contract", "compile_error", per_thread("y[r] = s")),
    "cut-off": hostile("contract", "compile_error contract unparsable", _PLAIN[: len(_PLAIN) // 2]),
    "spmm-for-spmv": hostile(
        "contract",
        _NO,
        per_thread(
            "C[r] = s;",
            total=loop("s += values[k] * B[col_idx[k]]"),
            parameters=f"{CSR}, const float* B, float* C, int rows",
        ),
    ),
}
