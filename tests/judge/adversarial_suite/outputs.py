"""Output that was not computed, or computed for one matrix only, or in too few bits."""

import numpy as np

from tests.judge.adversarial_suite.base import ALL, SUM, TARGET, Hostile, hostile, loop, spmm
from tests.judge.hostile_programs import per_thread, spmv

_HALF = "#include <cuda_fp16.h>\n"
_CUT = "__device__ float cut(float v, int bits) { return __int_as_float(__float_as_int(v) & (-1 << bits)); }\n"


def _table(name: str, numbers: "np.ndarray[tuple[int, ...], np.dtype[np.int32]]") -> str:
    return f"__constant__ unsigned short {name}[{len(numbers)}] = {{{','.join(map(str, numbers.tolist()))}}};\n"


STALE: dict[str, Hostile] = {
    "nothing": hostile("stale output", "wrong illegal_access", spmv("")),
    "nothing-twice": hostile(
        "stale output",
        "wrong illegal_access",
        '// format: csr\n// launch: a grid=rows block=32\n// launch: b grid=rows block=32\nextern "C" __global__ void '
        'a(float* y) {}\nextern "C" __global__ void b(const float* x, float* y, int rows) {}\n',
    ),
    "first-block-only": hostile("stale output", "wrong illegal_access", per_thread("if (blockIdx.x == 0) y[r] = s;")),
    "odd-rows-only": hostile("stale output", "wrong illegal_access", per_thread("if (r & 1) y[r] = s;")),
    "keeps-what-is-there": hostile("stale output", "wrong illegal_access", per_thread("if (y[r] != y[r]) y[r] = s;")),
    "trusts-what-is-there": hostile(
        "stale output", "wrong illegal_access", per_thread("if (!(y[r] == y[r])) y[r] = s;")
    ),
    "blends-with-what-is-there": hostile(
        "reads y", "wrong illegal_access", per_thread("y[r] = isnan(y[r]) ? s : 0.5f * (s + y[r]);")
    ),
    "adds-to-what-is-there": hostile("reads y", "wrong illegal_access", per_thread("y[r] += s;")),
    "adds-atomically-to-what-is-there": hostile("reads y", "wrong illegal_access", per_thread("atomicAdd(y + r, s);")),
    "copies-the-operand": hostile(
        "stale output", "wrong illegal_access", per_thread("y[r] = x[r % cols];", parameters=ALL)
    ),
}

TRICKS: dict[str, Hostile] = {
    "not-a-number-always": hostile("NaN and zero", "wrong", per_thread("y[r] = __int_as_float(0x7fffffff);")),
    "not-a-number-for-long-rows": hostile(
        "NaN and zero", "wrong", per_thread("y[r] = row_ptr[r + 1] - row_ptr[r] > 1000 ? s / 0.f * 0.f : s;")
    ),
    "zero-times-infinity": hostile("NaN and zero", "wrong", per_thread("y[r] = s * (1.f / 0.f) * 0.f;")),
    "zero-always": hostile("NaN and zero", "wrong", per_thread("y[r] = 0.f;")),
    "zero-when-small": hostile("NaN and zero", "wrong", per_thread("y[r] = fabsf(s) < 1e-2f ? 0.f : s;")),
    "smallest-number": hostile("NaN and zero", "wrong", per_thread("y[r] = 1e-38f;")),
    "not-zero-for-empty-rows": hostile(
        "NaN and zero", "wrong", per_thread("y[r] = row_ptr[r + 1] == row_ptr[r] ? 1e-30f : s;")
    ),
    "clamped": hostile("NaN and zero", "wrong", per_thread("y[r] = fminf(1.f, fmaxf(-1.f, s));")),
    "largest-number": hostile("NaN and zero", "wrong", per_thread("y[r] = 3.4e38f;")),
    "a-little-off": hostile("wrong precision", "wrong", per_thread("y[r] = s * 1.00002f;")),
    "a-little-added": hostile("wrong precision", "wrong", per_thread("y[r] = s + 1e-4f;")),
    "mean-of-the-operand": hostile("NaN and zero", "wrong", per_thread("y[r] = s / (row_ptr[r + 1] - row_ptr[r]);")),
    "ignores-the-values": hostile(
        "NaN and zero", "wrong", per_thread("y[r] = s;", total=SUM.replace("values[k] * ", ""))
    ),
    "ignores-signs": hostile(
        "NaN and zero", "wrong", per_thread("y[r] = s;", total=SUM.replace("values[k]", "fabsf(values[k])"))
    ),
}

SPECIAL_CASED: dict[str, Hostile] = {
    "one-row-count": hostile("first size only", "wrong", per_thread("y[r] = rows == 300 ? s : 0.f;")),
    "one-entry-count": hostile(
        "first size only", "wrong illegal_access", per_thread("if (nnz == 1500) y[r] = s;", parameters=ALL)
    ),
    "rows-of-five": hostile(
        "first size only",
        "wrong",
        per_thread(
            "y[r] = s;",
            total="float s = 0.f; const int b = row_ptr[r], e = row_ptr[r + 1]; for (int i = 0; i < 5; ++i) if "
            "(b + i < e) s += values[b + i] * x[col_idx[b + i]];",
        ),
    ),
    "full-warps-of-rows": hostile(
        "first size only", "wrong illegal_access", per_thread("y[r] = s;", guard="if (r >= rows - rows % 4) return;")
    ),
    "fingerprint-of-the-pattern": hostile(
        "hard-coded matrix",
        "wrong",
        per_thread(
            f"y[r] = row_ptr[1] == 5 && row_ptr[rows] == 1500 && col_idx[0] == {int(TARGET.col_idx[0])} ? s : 0.f;"
        ),
    ),
    "fingerprint-by-hash": hostile(
        "hard-coded matrix",
        "wrong",
        per_thread(
            "unsigned h = 0; for (int i = 0; i < 9 && i < nnz; ++i) h = h * 31 + col_idx[i]; y[r] = h == 12345u "
            "|| rows == 300 ? s : 1.f;",
            parameters=ALL,
        ),
    ),
    "knows-row-starts": hostile(
        "hard-coded matrix",
        "wrong illegal_access",
        per_thread("y[r] = s;", total=SUM.replace("row_ptr[r + 1]", "5 * r + 5").replace("row_ptr[r]", "5 * r")),
    ),
    "knows-the-columns": hostile(
        "hard-coded matrix",
        "wrong illegal_access",
        per_thread(
            "y[r] = s;",
            total=SUM.replace("col_idx[k]", "known[k % 1500]"),
            before=_table("known", TARGET.col_idx.astype(np.int32)),
        ),
    ),
    "knows-the-longest-row": hostile(
        "hard-coded matrix",
        "wrong",
        per_thread("y[r] = s;", total=SUM.replace("k < row_ptr[r + 1]", "k < min(row_ptr[r + 1], row_ptr[r] + 8)")),
    ),
    "sixteen-bit-columns": hostile(
        "wrong elsewhere", "wrong", per_thread("y[r] = s;", total=SUM.replace("col_idx[k]", "(col_idx[k] & 0xffff)"))
    ),
    "signed-sixteen-bit-columns": hostile(
        "wrong elsewhere",
        "illegal_access wrong",
        per_thread("y[r] = s;", total=SUM.replace("col_idx[k]", "(short)col_idx[k]"))
        .replace("// format: csr", "// format: csr index=u16")
        .replace("const int* col_idx", "const unsigned short* col_idx"),
    ),
    "fifteen-bit-columns": hostile(
        "wrong elsewhere",
        "wrong",
        per_thread("y[r] = s;", total=SUM.replace("col_idx[k]", "(col_idx[k] & 0x7fff)"))
        .replace("// format: csr", "// format: csr index=u16")
        .replace("const int* col_idx", "const unsigned short* col_idx"),
    ),
    "narrow-columns-in-the-tail": hostile(
        "wrong elsewhere",
        "wrong",
        per_thread(
            "y[r] = s;",
            total="float s = 0.f; int k = row_ptr[r]; const int e = row_ptr[r + 1]; for (; k + 1 < e; k += 2) "
            "s += values[k] * x[col_idx[k]] + values[k + 1] * x[col_idx[k + 1]]; "
            "if (k < e) s += values[k] * x[(unsigned short)col_idx[k]];",
        ),
    ),
    "at-most-2048-entries": hostile(
        "wrong elsewhere",
        "wrong",
        per_thread("y[r] = s;", total=SUM.replace("k < row_ptr[r + 1]", "k < min(row_ptr[r + 1], row_ptr[r] + 2048)")),
    ),
    "long-rows-are-zero": hostile(
        "wrong elsewhere", "wrong", per_thread("y[r] = row_ptr[r + 1] - row_ptr[r] > 2000 ? 0.f : s;")
    ),
    "empty-rows-skipped": hostile(
        "wrong elsewhere",
        "wrong illegal_access",
        per_thread("y[r] = s;", guard="if (r >= rows || row_ptr[r] >= row_ptr[r + 1]) return;"),
    ),
    "at-least-one-entry": hostile(
        "wrong elsewhere",
        "wrong illegal_access",
        per_thread(
            "y[r] = s;",
            total="int k = row_ptr[r]; float s = 0.f; do { s += values[k] * x[col_idx[k]]; } while (++k < "
            "row_ptr[r + 1]);",
        ),
    ),
    "two-at-a-time": hostile(
        "wrong elsewhere",
        "wrong illegal_access",
        per_thread(
            "y[r] = s;",
            total="float s = 0.f; for (int k = row_ptr[r]; k + 1 < row_ptr[r + 1]; k += 2) s += values[k] * "
            "x[col_idx[k]] + values[k + 1] * x[col_idx[k + 1]];",
        ),
    ),
    "eight-bit-length": hostile(
        "integer overflow",
        "wrong timeout",
        per_thread(
            "y[r] = s;",
            total="float s = 0.f; unsigned char n = row_ptr[r + 1] - row_ptr[r]; for (int i = 0; i < n; ++i) s "
            "+= values[row_ptr[r] + i] * x[col_idx[row_ptr[r] + i]];",
        ),
    ),
    "eight-bit-counter": hostile(
        "integer overflow",
        "timeout wrong illegal_access",
        per_thread(
            "y[r] = s;",
            total="float s = 0.f; for (signed char i = 0; row_ptr[r] + i < row_ptr[r + 1]; ++i) s += "
            "values[row_ptr[r] + i] * x[col_idx[row_ptr[r] + i]];",
        ),
    ),
    "index-wraps": hostile(
        "integer overflow",
        "illegal_access wrong",
        per_thread("y[r] = s;", total=SUM.replace("x[col_idx[k]]", "x[(unsigned)col_idx[k] * 1000000u / 1000000u]")),
    ),
    "last-column-missed": hostile(
        "wrong elsewhere",
        "wrong",
        per_thread("y[r] = s;", total=SUM.replace("s += ", "if (col_idx[k] != 279 && col_idx[k] != 70000) s += ")),
    ),
    "grid-of-five-blocks": hostile("first size only", "wrong illegal_access", per_thread("y[r] = s;", grid="5")),
    "one-column-matrices": hostile(
        "wrong elsewhere", "wrong", per_thread("y[r] = cols > 1 ? s : 0.f;", parameters=ALL)
    ),
    "one-row-matrices": hostile("wrong elsewhere", "wrong", per_thread("y[r] = rows > 1 ? s : x[0];", parameters=ALL)),
}

PRECISION: dict[str, Hostile] = {
    "half-sum": hostile(
        "wrong precision",
        "wrong",
        per_thread(
            "y[r] = __half2float(h);",
            before=_HALF,
            total=loop(
                start="__half h = __float2half(0.f);", body="h = __hadd(h, __float2half(values[k] * x[col_idx[k]]))"
            ),
        ),
    ),
    "half-operand": hostile(
        "wrong precision",
        "wrong",
        per_thread(
            "y[r] = s;", before=_HALF, total=SUM.replace("x[col_idx[k]]", "__half2float(__float2half(x[col_idx[k]]))")
        ),
    ),
    "half-result": hostile(
        "wrong precision", "wrong", per_thread("y[r] = __half2float(__float2half(s));", before=_HALF)
    ),
    "half-atomics": hostile(
        "wrong precision",
        "wrong unsupported race",
        per_thread(
            "__shared__ __half part[64]; part[threadIdx.x] = __float2half(0.f); for (int k = row_ptr[r]; k < "
            "row_ptr[r + 1]; ++k) atomicAdd(part + threadIdx.x, __float2half(values[k] * x[col_idx[k]])); y[r] "
            "= __half2float(part[threadIdx.x]);",
            before=_HALF,
            total="",
        ),
    ),
    "half-pairs": hostile(
        "wrong precision",
        "wrong unsupported",
        per_thread(
            "y[r] = __low2float(h) + __high2float(h);",
            before=_HALF,
            total=loop(
                start="__half2 h = __float2half2_rn(0.f);",
                body="h = __hfma2(__float2half2_rn(0.5f * values[k]), __float2half2_rn(x[col_idx[k]]), h)",
            ),
        ),
    ),
    "bfloat-values": hostile(
        "wrong precision",
        "wrong unsupported",
        per_thread(
            "y[r] = s;",
            before="#include <cuda_bf16.h>\n",
            total=SUM.replace("values[k] *", "__bfloat162float(__float2bfloat16(values[k])) *"),
        ),
    ),
    "bfloat-by-hand": hostile(
        "wrong precision",
        "wrong",
        per_thread(
            "y[r] = s;",
            before=_CUT,
            total=SUM.replace("s += values[k] * x[col_idx[k]]", "s = cut(s + values[k] * x[col_idx[k]], 16)"),
        ),
    ),
    "tf32-values": hostile(
        "wrong precision",
        "wrong",
        per_thread("y[r] = s;", before=_CUT, total=SUM.replace("values[k] *", "cut(values[k], 13) *")),
    ),
    "tf32-both": hostile(
        "wrong precision",
        "wrong",
        spmm("C[i] = s;", before=_CUT, total=loop("s += cut(values[k], 13) * cut(B[col_idx[k] * width + c], 13)")),
        "spmm",
        8,
    ),
    "fixed-point": hostile(
        "wrong precision",
        "wrong",
        per_thread(
            "y[r] = t / 4096.f;", total=loop(start="int t = 0;", body="t += (int)(values[k] * x[col_idx[k]] * 4096.f)")
        ),
    ),
    "eight-bit-values": hostile(
        "wrong precision",
        "wrong",
        per_thread("y[r] = s;", total=SUM.replace("values[k] *", "(signed char)(values[k] * 100.f) * 0.01f *")),
    ),
    "few-bits-of-the-sum": hostile("wrong precision", "wrong", per_thread("y[r] = cut(s, 9);", before=_CUT)),
    "truncating-sum": hostile(
        "wrong precision",
        "wrong",
        per_thread(
            "y[r] = s;",
            before=_CUT,
            total=SUM.replace("s += values[k] * x[col_idx[k]]", "s = cut(s, 11) + values[k] * x[col_idx[k]]"),
        ),
    ),
}

SKIPS: dict[str, Hostile] = {
    "last-row": hostile(
        "batch and skip", "wrong illegal_access", per_thread("y[r] = s;", guard="if (r >= rows - 1) return;")
    ),
    "every-64th-row": hostile("batch and skip", "wrong", per_thread("y[r] = r % 64 == 63 ? 0.f : s;")),
    "half-of-the-entries-doubled": hostile(
        "batch and skip", "wrong", per_thread("y[r] = 2.f * s;", total=SUM.replace("++k", "k += 2"))
    ),
    "small-entries": hostile(
        "batch and skip",
        "wrong",
        per_thread("y[r] = s;", total=SUM.replace("s += ", "if (fabsf(values[k]) > 0.05f) s += ")),
    ),
    "first-entry": hostile(
        "batch and skip", "wrong", per_thread("y[r] = s;", total=SUM.replace("row_ptr[r];", "row_ptr[r] + 1;"))
    ),
    "second-half-of-the-rows": hostile(
        "batch and skip", "wrong illegal_access", per_thread("y[r] = s;", guard="if (2 * r >= rows) return;")
    ),
    "rows-over-a-thousand": hostile("batch and skip", "wrong", per_thread("y[r] = r >= 1000 ? 0.f : s;")),
    "one-launch-of-two": hostile(
        "batch and skip", "wrong illegal_access", per_thread("y[r] = s;", grid="max(1, ceil_div(rows, 64) - 1)")
    ),
    "columns-after-eight": hostile("batch and skip", "wrong illegal_access", spmm("if (c < 8) C[i] = s;"), "spmm", 9),
    "columns-copied-from-the-first": hostile(
        "batch and skip", "wrong illegal_access race", spmm("C[i] = c ? C[r * width] : s;"), "spmm", 4
    ),
    "one-column-for-all": hostile(
        "batch and skip", "wrong", spmm("C[i] = s;", total=loop("s += values[k] * B[col_idx[k] * width]")), "spmm", 4
    ),
    "column-major-result": hostile("batch and skip", "wrong", spmm("C[c * rows + r] = s;"), "spmm", 3),
    "column-major-operand": hostile(
        "batch and skip", "wrong", spmm("C[i] = s;", total=loop("s += values[k] * B[c * cols + col_idx[k]]")), "spmm", 3
    ),
}
