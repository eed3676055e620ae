"""The check on the PTX, which must hold where the interpreter cannot run a program."""

import pytest

from components.judge.compile import compile_program
from components.judge.ptx_policy import Violation, check_ptx

_HEAD = """.version 8.7
.target sm_90
.address_size 64
"""


def _entry(body: str, before: str = "") -> str:
    return (
        f"{_HEAD}{before}\n.visible .entry f(\n\t.param .u64 f_param_0\n)\n{{\n\t.loc\t1 12 3\n\t{body}\n\tret;\n}}\n"
    )


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("mov.u32 %r1, %clock;", "reads a clock: %clock"),
        ("mov.u64 %rd1, %clock64;", "reads a clock: %clock64"),
        ("mov.u32 %r1, %clock_hi;", "reads a clock: %clock_hi"),
        ("mov.u64 %rd1, %globaltimer;", "reads a clock: %globaltimer"),
        ("@%p1 mov.u32 %r1, %globaltimer_lo;", "reads a clock: %globaltimer_lo"),
        ("mov.u64 %rd1, %gridid;", "reads %gridid, which tells one launch from another"),
        ("mov.u64 %rd1, %current_graph_exec;", "reads %current_graph_exec, which tells one launch from another"),
        ("mov.b32 %r1, %envreg3;", "reads %envreg3, which tells one launch from another"),
        ("mov.u32 %r1, %pm0;", "reads %pm0, which tells one launch from another"),
        ("nanosleep.u32 %r1;", "waits by the clock: nanosleep"),
        ("createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F800000;", "pins or drops cache lines"),
        ("ld.global.L2::evict_last.f32 %f1, [%rd1];", "pins or drops cache lines: ld.global.L2::evict_last.f32"),
        ("ld.global.L2::cache_hint.f32 %f1, [%rd1], %rd2;", "pins or drops cache lines"),
        ("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1], %rd2;", "pins or drops"),
        ("cp.async.bulk.shared::cluster.global.L2::cache_hint [%r1], [%rd1], %r2, [%r3], %rd2;", "pins or drops"),
        ("prefetch.global.L2::evict_last [%rd1];", "pins or drops cache lines"),
        ("applypriority.global.L2::evict_normal [%rd1], 128;", "pins or drops cache lines"),
        ("discard.global.L2 [%rd1], 128;", "pins or drops cache lines"),
        ("tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}];", "reads a texture or surface"),
        ("suld.b.1d.b32.trap {%r1}, [%rd1, {%r2}];", "reads a texture or surface"),
        ("griddepcontrol.launch_dependents;", "steers other launches"),
        ("call (retval0), %rd1, (param0), prototype_0;", "calls through a pointer"),
        ("call.uni (retval0), vprintf, (param0, param1);", "calls printf, which is not part of the program"),
        ("call.uni (retval0), malloc, (param0);", "calls malloc, which is not part of the program"),
        ("call.uni cudaLaunchDeviceV2, (param0);", "calls cudaLaunchDeviceV2, which is not part of the program"),
    ],
)
def test_an_instruction_that_is_refused_is_named_with_its_line(instruction: str, message: str) -> None:
    found = check_ptx(_entry(instruction))
    assert found is not None
    assert found.message.startswith(message)
    assert found.line == 12


@pytest.mark.parametrize(
    "instruction",
    [
        "ld.global.nc.f32 %f1, [%rd1];",
        "ld.global.cs.L1::no_allocate.L2::128B.f32 %f1, [%rd1];",
        "ld.global.L1::evict_last.f32 %f1, [%rd1];",  # L1 holds nothing from one launch to the next
        "st.global.cs.f32 [%rd1], %f1;",
        "prefetch.global.L2 [%rd1];",
        "mov.u32 %r1, %smid;",
        "mov.u32 %r1, %warpid;",
        "trap;",
        "exit;",
        "setmaxnreg.inc.sync.aligned.u32 64;",
        "cp.async.ca.shared.global [%r1], [%rd1], 16;",
        "bar.sync 0;",
        "atom.global.add.f32 %f1, [%rd1], %f2;",
    ],
)
def test_what_outlives_no_launch_is_legal(instruction: str) -> None:
    assert check_ptx(_entry(instruction)) is None


TABLE = ".global .align 4 .b8 t[8] = {0, 0, 128, 63, 0, 0, 0, 64};"
CONSTANT = TABLE.replace(".global", ".const")


@pytest.mark.parametrize(
    ("before", "body"),
    [
        (TABLE, "ld.global.f32 %f1, [t+4];"),
        (CONSTANT, "ld.const.f32 %f1, [t];"),
        (TABLE, "mov.u64 %rd1, t; add.s64 %rd2, %rd1, %rd9; ld.global.nc.f32 %f1, [%rd2+4];"),
        (TABLE, "mov.u64 %rd1, t; cvta.global.u64 %rd2, %rd1; ld.f32 %f1, [%rd2];"),
        (
            TABLE,
            "mov.u64 %rd1, t; add.s64 %rd2, %rd1, 8; setp.eq.s64 %p1, %rd1, %rd2; sub.s64 %rd3, %rd2, %rd1; "
            "shr.u64 %rd4, %rd3, 2; st.global.u64 [%rd9], %rd4;",
        ),
        (".global .align 4 .u32 unused;", "add.s32 %r1, %r2, %r3;"),
        (".shared .align 4 .b8 s[64];", "st.shared.f32 [s], %f1;"),
        (".extern .shared .align 16 .b8 s[];", "mov.u32 %r1, s; st.shared.f32 [%r1], %f1;"),
    ],
)
def test_tables_that_are_only_read_are_legal(before: str, body: str) -> None:
    assert check_ptx(_entry(body, before)) is None


@pytest.mark.parametrize(
    ("before", "body", "message"),
    [
        (TABLE, "st.global.f32 [t], %f1;", "writes the module-scope variable t"),
        (TABLE, "atom.global.add.u32 %r1, [t+4], 1;", "writes the module-scope variable t"),
        (TABLE, "red.global.add.u32 [t], 1;", "writes the module-scope variable t"),
        (
            TABLE,
            "mov.u64 %rd1, t; add.s64 %rd2, %rd1, %rd9; st.global.f32 [%rd2], %f1;",
            "writes the module-scope variable t",
        ),
        (
            TABLE,
            "st.global.f32 [%rd2], %f1; mov.u64 %rd2, t; bra L;",
            "writes the module-scope variable t",
        ),  # in a loop
        (TABLE, "mov.u64 %rd1, t; selp.b64 %rd2, %rd8, %rd1, %p1; st.f32 [%rd2], %f1;", "writes the module-scope"),
        (
            CONSTANT,
            "mov.u64 %rd1, t; cvta.const.u64 %rd2, %rd1; st.u32 [%rd2], 3;",
            "writes the module-scope variable t",
        ),
        (TABLE, "mov.u64 %rd1, t; st.param.b64 [param0], %rd1;", "gives away the address of module-scope variable t"),
        (TABLE, "mov.u64 %rd1, t; st.global.u64 [%rd9], %rd1;", "gives away the address of module-scope variable t"),
        (
            TABLE,
            "mov.u64 %rd1, t; xor.b64 %rd2, %rd1, 5; xor.b64 %rd3, %rd2, 5; st.global.f32 [%rd3], %f1;",
            "computes with",
        ),
        (TABLE, "mov.u64 %rd1, t; mov.b64 {%r1, %r2}, %rd1;", "computes with the address of module-scope variable t"),
        (
            TABLE,
            "mov.u64 %rd1, t; setp.lt.u64 %p1, %rd1, %rd9;",
            "computes with the address of module-scope variable t",
        ),
        (
            TABLE + "\n.global .align 8 .u64 p = t;",
            "ld.global.u64 %rd1, [p];",
            "keeps the address of module-scope variable t",
        ),
        (TABLE + "\n.global .align 8 .u64 p = generic(t);", "ld.global.u64 %rd1, [p];", "keeps the address"),
        (
            ".global .align 4 .u32 calls;",
            "ld.global.u32 %r1, [calls];",
            "uses the writable module-scope variable calls",
        ),
        (
            ".visible .global .align 4 .u32 _ZZ4spmvE5calls;",
            "ld.global.u32 %r1, [_ZZ4spmvE5calls];",
            "uses the writable module-scope variable calls",
        ),
        (
            ".extern .global .align 4 .f32 other;",
            "ld.global.f32 %f1, [other];",
            "uses the writable module-scope variable other",
        ),
    ],
)
def test_memory_that_outlives_a_launch_is_refused(before: str, body: str, message: str) -> None:
    found = check_ptx(_entry(body, before))
    assert found is not None
    assert found.message.startswith(message)
    assert found.line == 12


def test_managed_memory_and_textures_are_refused_where_they_are_declared() -> None:
    assert check_ptx(_entry("", ".global .attribute(.managed) .align 4 .u32 m = 3;")) == Violation(
        "uses managed memory", None
    )
    assert check_ptx(_entry("", ".global .texref t;")) == Violation("uses a texture or surface (.texref)", None)


def test_a_line_of_an_inlined_function_is_that_of_its_call() -> None:
    inlined = "\n\t.loc\t2 99 1, function_name $L__info_string0, inlined_at 1 30 5\n\tmov.u64 %rd1, %clock64;"
    assert check_ptx(_entry(inlined)) == Violation("reads a clock: %clock64", 30)


def test_names_of_the_programs_own_are_not_taken_for_instructions() -> None:
    text = _entry("call.uni (r), tex, (param0);", ".func (.param .b32 r) tex(.param .b32 p)\n{\n\tret;\n}\n")
    assert check_ptx(text) is None
    assert check_ptx(_entry("add.s32 %r1, %r2, %r3; // %clock64 nanosleep")) is None


def test_what_the_compiler_makes_of_honest_code_is_legal() -> None:
    source = """__device__ const float even[4] = {1, 2, 3, 4};
__constant__ float odd[4] = {5, 6, 7, 8};
extern "C" __global__ void f(const int* p, float* y, int n) {
  static const float third[3] = {1, 2, 3};
  const float* t = n & 1 ? odd : even;
  float s = sinf(1e6f * p[0]);  // its slow path reads a table of the compiler's own
  for (const float* q = t; q != t + 4; ++q) s += *q;
  switch (p[threadIdx.x]) { case 0: s = 1; break; case 1: s *= 2; break; case 2: s -= 3; break; case 5: s = n; }
  y[threadIdx.x] = s + third[p[1] % 3];
}
"""
    assert check_ptx(compile_program(source, "sm_90").ptx) is None


def test_text_that_is_cut_short_is_still_read() -> None:
    whole = _entry("mov.u64 %rd1, %clock64;")
    assert check_ptx(whole[: whole.index("ret;")]) == Violation("reads a clock: %clock64", 12)
    assert check_ptx("") is None
