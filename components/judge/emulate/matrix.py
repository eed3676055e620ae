"""Matrix instructions of a whole warp: mma.sync and the exchange of ldmatrix.

Products and sums are done in f64 and rounded once to the accumulator's type: at least as exact as the hardware, which
keeps fewer bits of intermediate sums. The places of the elements are those of PTX ISA 9.7.15.5: with g = lane / 4,
t = lane % 4 and n elements of a factor to a register, register r of A holds row g + 8 (r % 2), columns
n t + 4 n (r / 2) and on; register r of B holds rows n t + 4 n r and on of column g; element i of C and D is in row
g + 8 (i / 2), column 2 t + i % 2.
"""

from components.judge.emulate import layout
from components.judge.emulate.jit import jit
from components.judge.emulate.primitives import (
    bf16_wide,
    f16_code,
    f16_wide,
    f32_code,
    f32_wide,
    ld32,
    ld64,
    multiply_add,
    s32_code,
    s32_wide,
    st32,
    st64,
)


@jit
def factor(kind: int, word: int, part: int) -> int:
    """Element `part` of a register of a factor, as the bits of an f64."""
    bits: int = word
    if kind <= 1:
        code = (word >> (16 * part)) & 0xFFFF
        bits = f16_wide(code) if kind == 0 else bf16_wide(code)
    elif kind == 2:
        bits = f32_wide(word & 0xFFFFE000)  # the hardware does not look at the other bits
    elif kind > 3:
        code = (word >> (8 * part)) & 255
        if kind == 4 and code >= 128:
            code -= 256
        bits = s32_wide(code)
    return bits


@jit
def multiply(state: int, ins: int, regs: int) -> None:
    """mma.sync: D = A B + C, whole warp."""
    side = ld64(state + layout.S_CODE) + ld64(ins + layout.I_V3) * layout.INS_BYTES
    scratch = ld64(state + layout.S_SCRATCH)
    a, b, c = scratch + layout.SCRATCH_A, scratch + layout.SCRATCH_B, scratch + layout.SCRATCH_C
    kind = ld64(ins + layout.I_KIND)
    rows = ld64(ins + layout.I_SIZE)
    inner = ld64(ins + layout.I_IMM)
    narrow = ld64(ins + layout.I_FLAGS)  # C and D are f16
    each = 2 if kind <= 1 else 1 if kind <= 3 else 4
    slot = 8 if kind == 3 else 4
    count_b = inner // (4 * each)
    count_a = count_b * (rows // 8)
    for lane in range(layout.LANES):
        group = lane >> 2
        thread = lane & 3
        for r in range(count_a):
            place = regs + ld64(side + 8 * (layout.MMA_A + r)) + slot * lane
            word = ld64(place) if slot == 8 else ld32(place)
            row = group + (8 * (r & 1) if rows == 16 else 0)
            start = each * thread + 4 * each * (r >> 1 if rows == 16 else r)
            for part in range(each):
                st64(a + 8 * (row * inner + start + part), factor(kind, word, part))
        for r in range(count_b):
            place = regs + ld64(side + 8 * (layout.MMA_B + r)) + slot * lane
            word = ld64(place) if slot == 8 else ld32(place)
            for part in range(each):
                st64(b + 8 * ((each * thread + 4 * each * r + part) * 8 + group), factor(kind, word, part))
        for i in range(rows // 4):
            place = c + 8 * ((group + 8 * (i >> 1)) * 8 + 2 * thread + (i & 1))
            if narrow:
                word = ld32(regs + ld64(side + 8 * (layout.MMA_C + (i >> 1))) + 4 * lane)
                st64(place, f16_wide((word >> (16 * (i & 1))) & 0xFFFF))
            else:
                source = regs + ld64(side + 8 * (layout.MMA_C + i)) + slot * lane
                if kind == 3:
                    st64(place, ld64(source))
                elif kind < 3:
                    st64(place, f32_wide(ld32(source)))
                else:
                    value = ld32(source)
                    st64(place, s32_wide(value - (value >> 31 << 32)))
    for row in range(rows):
        for column in range(8):
            total = ld64(c + 8 * (row * 8 + column))
            for k in range(inner):
                total = multiply_add(total, ld64(a + 8 * (row * inner + k)), ld64(b + 8 * (k * 8 + column)))
            st64(c + 8 * (row * 8 + column), total)
    for lane in range(layout.LANES):
        group = lane >> 2
        thread = lane & 3
        for i in range(rows // 4):
            total = ld64(c + 8 * ((group + 8 * (i >> 1)) * 8 + 2 * thread + (i & 1)))
            if narrow:
                place = regs + ld64(side + 8 * (layout.MMA_D + (i >> 1))) + 4 * lane
                old = ld32(place) & 0xFFFF if i & 1 else 0
                st32(place, old | f16_code(total) << (16 * (i & 1)))
            else:
                place = regs + ld64(side + 8 * (layout.MMA_D + i)) + slot * lane
                if kind == 3:
                    st64(place, total)
                elif kind < 3:
                    st32(place, f32_code(total))
                else:
                    st32(place, s32_code(total) & layout.FULL)


@jit
def distribute(state: int, ins: int, regs: int) -> None:
    """ldmatrix: lane 8 m + i has loaded row i of matrix m (8 x 8, 16 bytes a row); hand out its elements."""
    side = ld64(state + layout.S_CODE) + ld64(ins + layout.I_V3) * layout.INS_BYTES
    transposed = ld64(ins + layout.I_IMM)
    for matrix in range(ld64(ins + layout.I_SIZE)):
        target = regs + ld64(side + 8 * matrix)
        for lane in range(layout.LANES):
            group = lane >> 2
            thread = lane & 3
            if transposed:
                word = 0
                source = regs + ld64(side + 8 * (layout.MMA_A + (group >> 1)))
                for part in range(2):
                    pair = ld32(source + 4 * (8 * matrix + 2 * thread + part))
                    word |= ((pair >> (16 * (group & 1))) & 0xFFFF) << (16 * part)
            else:
                word = ld32(regs + ld64(side + 8 * (layout.MMA_A + thread)) + 4 * (8 * matrix + group))
            st32(target + 4 * lane, word)
