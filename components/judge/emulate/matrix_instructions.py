"""mma.sync and ldmatrix -> bytecode."""

from components.judge.emulate import layout
from components.judge.emulate.ptx_text import Unsupported
from components.judge.emulate.translate import Translator

# (factors' type, accumulator's type) -> shapes
SHAPES = {
    ("f16", "f32"): ("m16n8k8", "m16n8k16"),
    ("f16", "f16"): ("m16n8k8", "m16n8k16"),
    ("bf16", "f32"): ("m16n8k8", "m16n8k16"),
    ("tf32", "f32"): ("m16n8k4", "m16n8k8"),
    ("f64", "f64"): ("m8n8k4",),
    ("s8", "s32"): ("m16n8k16", "m16n8k32"),
    ("u8", "s32"): ("m16n8k16", "m16n8k32"),
}
PER_REGISTER = {"f16": 2, "bf16": 2, "tf32": 1, "f64": 1, "s8": 4, "u8": 4}


def _names(token: str, count: int) -> list[str]:
    names = [n.strip() for n in token.strip("{}").split(",")]
    if len(names) != count:
        raise ValueError(token)
    return names


def mma(t: Translator, parts: list[str], o: list[str]) -> None:
    """mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype d, a, b, c."""
    if parts[1:3] != ["sync", "aligned"] or parts[4:6] != ["row", "col"] or len(parts) != 10 or len(o) != 4:
        raise Unsupported(".".join(parts), t.line)
    shape, (dst, first, second, third) = parts[3], parts[6:]
    if first != second or dst != third or shape not in SHAPES.get((first, dst), ()):
        raise Unsupported(".".join(parts), t.line)
    rows, inner = int(shape[1:].split("n")[0]), int(shape.split("k")[1])
    kind = "b64" if first == "f64" else "b32"
    count_b = inner // (4 * PER_REGISTER[first])
    count_c = rows // 4 // (2 if dst == "f16" else 1)
    words = [-1] * layout.INS_WORDS
    for start, token, count in (
        (layout.MMA_A, o[1], count_b * rows // 8),
        (layout.MMA_B, o[2], count_b),
        (layout.MMA_C, o[3], count_c),
    ):
        for k, name in enumerate(_names(token, count)):
            words[start + k] = t.operand(name, kind).offset
    for k, name in enumerate(_names(o[0], count_c)):
        words[layout.MMA_D + k] = t.target(name, kind).offset
    mask = t.constant(layout.FULL, 4).offset
    t.emit(
        layout.OP_MMA,
        KIND=layout.MMA_KINDS.index(first),
        SIZE=rows,
        IMM=inner,
        FLAGS=int(dst == "f16"),
        V1=mask,
        V3=t.side_row(words),
    )


def ldmatrix(t: Translator, parts: list[str], o: list[str]) -> None:
    """ldmatrix.sync.aligned.m8n8.num{.trans}.shared.b16 d, [row]: a 16-byte load a row, then an exchange."""
    number = next((p for p in parts if p in ("x1", "x2", "x4")), "")
    known = ["ldmatrix", "sync", "aligned", "m8n8", number, *(["trans"] if "trans" in parts else [])]
    if [*known, "shared", "b16"] != [p.removesuffix("::cta") for p in parts] or t.guard != (t.true.offset, 0):
        raise Unsupported(".".join(parts), t.line)
    count = int(number[1])
    place, offset, narrow = t.address(o[1])
    targets = [t.target(name, "b32").offset for name in _names(o[0], count)]
    rows = [t.allocate(4).offset for _ in range(4)]
    if count < 4:
        inside = t.temporary("setp.lt.u32", t.special_register("%laneid"), t.constant(8 * count, 4))
        t.guard = (inside.offset, 0)
    t.emit(layout.OP_LD, A=place, IMM=offset, SIZE=4, VEC=4, SPACE=layout.SP_SHARED, KIND=4, FLAGS=narrow,
           V0=rows[0], V1=rows[1], V2=rows[2], V3=rows[3])  # fmt: skip
    t.guard = (t.true.offset, 0)
    words = [*targets, *[-1] * (layout.MMA_A - count), *rows]
    t.emit(
        layout.OP_LDMATRIX,
        SIZE=count,
        IMM=int("trans" in parts),
        V1=t.constant(layout.FULL, 4).offset,
        V3=t.side_row(words),
    )
