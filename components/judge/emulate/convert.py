"""cvt: between integers, f32, f64, f16, bf16, tf32 and fp8, with the roundings and saturation that NVRTC emits."""

from components.judge.emulate.ptx_text import Unsupported
from components.judge.emulate.registers import Register
from components.judge.emulate.translate import Translator

INTEGERS = {f"{s}{n}": (s, n) for s in "su" for n in (8, 16, 32, 64)}
ROUND_INTEGER = ("rni", "rmi", "rpi", "rzi")
ALLOWED = {"rn", "rz", "rm", "rp", *ROUND_INTEGER, "ftz", "sat", "relu"}
RANGE = {
    f"{s}{n}": (-(1 << (n - 1)), (1 << (n - 1)) - 1) if s == "s" else (0, (1 << n) - 1) for s, n in INTEGERS.values()
}
FP8 = ("e4m3x2", "e5m2x2")
PAIRS = ("f16x2", "bf16x2", *FP8)


def convert(t: Translator, parts: list[str], o: list[str]) -> None:
    """cvt{.rounding}{.ftz}{.sat}{.relu}{.satfinite}.dst.src d, a{, b}."""
    dst, src, modes = parts[-2], parts[-1], set(parts[1:-2])
    if dst == "tf32" or dst in PAIRS or src in PAIRS:
        _packed(t, parts, o, modes)
        return
    if not modes <= ALLOWED or len(o) != 2:
        raise Unsupported(".".join(parts), t.line)
    if src in INTEGERS:
        value = _integer_source(t, src, o[1])
        if dst in INTEGERS:
            _to_integer(t, dst, src, value, o[0], "sat" in modes, parts)
        else:
            _from_integer(t, dst, src, value, o[0], modes, parts)
        return
    if src in ("f16", "bf16"):
        value = t.temporary(f"f32.{src}", o[1])
        src = "f32"
    elif src in ("f32", "f64"):
        value = t.operand(o[1], src)
    else:
        raise Unsupported(".".join(parts), t.line)
    if "ftz" in modes and parts[-1] == "f32":
        value = t.temporary("ftz.f32", value)
    rounding = next((m for m in ROUND_INTEGER if m in modes), None)
    if rounding:
        value = t.temporary(f"{rounding}.{src}", value)
    if dst in INTEGERS:
        if not rounding:
            raise Unsupported(".".join(parts), t.line)
        _float_to_integer(t, dst, src, value, o[0])
    else:
        _float_to_float(t, dst, src, value, o[0], modes, parts)


def _packed(t: Translator, parts: list[str], o: list[str], modes: set[str]) -> None:
    """Pairs, fp8 and tf32, in the forms that one rounding and relu describe."""
    dst, src = parts[-2], parts[-1]
    if dst == "tf32" and src == "f32" and len(modes) == 1 and modes <= {"rna", "rn", "rz"}:
        t.vector(f"tf32.{modes.pop()}.f32", o[0], o[1])
    elif dst in ("f16x2", "bf16x2") and src == "f32" and modes - {"relu"} in ({"rn"}, {"rz"}) and len(o) == 3:
        kind = dst.removesuffix("x2")
        if "rn" in modes:
            t.vector(f"{dst}.f32", o[0], o[1], o[2])
        else:
            halves = [t.temporary(f"{kind}.rz.f64", t.temporary("f64.f32", x)) for x in o[1:]]
            t.vector(f"pack.{dst}", o[0], *halves)
        if "relu" in modes:
            t.vector(f"relu.{dst}", o[0], o[0])
    elif dst in FP8 and src == "f32" and modes == {"rn", "satfinite"} and len(o) == 3:
        t.vector(f"{dst}.f32", o[0], o[1], o[2])
    elif dst in FP8 and src == "f16x2" and modes == {"rn", "satfinite"}:
        t.vector(f"{dst}.f16x2", o[0], o[1])
    elif dst == "f16x2" and src in FP8 and modes == {"rn"}:
        t.vector(f"f16x2.{src}", o[0], o[1])
    else:
        raise Unsupported(".".join(parts), t.line)


def _integer_source(t: Translator, src: str, token: str) -> Register:
    """The source as a 4-byte (up to 32 bits, extended) or 8-byte register."""
    sign, bits = INTEGERS[src]
    place = t.find(token)
    if place is None:
        place = t.operand(token, "b64" if bits == 64 else "b32")
    if bits == 64:
        return t.operand(place, "b64")
    if place.slot == 8:
        place = t.temporary("narrow.b64", place)
    return t.temporary(f"extend.{sign}{bits}", place) if bits < 32 else place


def _to_integer(t: Translator, dst: str, src: str, value: Register, out: str, clamp: bool, parts: list[str]) -> None:
    sign, bits = INTEGERS[dst]
    source_sign = INTEGERS[src][0]
    if clamp:
        low, high = RANGE[dst]
        if value.slot == 4:
            value = t.temporary(f"widen.{source_sign}32", value)
        if source_sign == "s":
            value = t.temporary("max.s64", value, t.constant(low, 8))
            value = t.temporary("min.s64", value, t.constant(min(high, 2**63 - 1), 8))
        else:
            value = t.temporary("min.u64", value, t.constant(high, 8))
    place = t.find(out)
    if place is None:
        raise Unsupported(f"destination {out}", t.line)
    if bits == 64:
        t.vector("mov.b64" if value.slot == 8 else f"widen.{source_sign}32", out, value)
        return
    if value.slot == 8:
        value = t.temporary("narrow.b64", value)
    if bits < 32:
        value = t.temporary(f"extend.{sign}{bits}", value)
    t.vector("mov.b32" if place.slot == 4 else f"widen.{sign}32", out, value)


def _from_integer(t: Translator, dst: str, src: str, value: Register, out: str, modes: set[str],
                  parts: list[str]) -> None:  # fmt: skip
    sign, bits = INTEGERS[src]
    name = f"{sign}{64 if bits == 64 else 32}"
    mode = next((m for m in ("rz", "rm", "rp") if m in modes), None)
    if modes - {"rn", "rz", "rm", "rp"}:
        raise Unsupported(".".join(parts), t.line)
    if dst in ("f16", "bf16"):
        exact = t.temporary(f"odd.{name}" if bits == 64 else f"f64.{name}", value)
        t.vector(f"{dst}.{mode or 'rn'}.f64", out, exact)
    elif mode is None and dst in ("f32", "f64"):
        t.vector(f"{dst}.{name}", out, value)
    elif dst == "f32":
        t.vector(f"narrow.{mode}.f32", out, t.temporary(f"odd.{name}" if bits == 64 else f"f64.{name}", value))
    elif dst == "f64" and bits < 64:
        t.vector(f"f64.{name}", out, value)
    elif dst == "f64":  # both halves are exact; their sum is rounded once
        upper = t.temporary(f"f64.{name}", t.temporary(f"shr.{name}", value, t.constant(32, 4)))
        upper = t.temporary("mul.f64", upper, t.constant(0x41F0000000000000, 8))  # 2^32
        t.vector(f"add.{mode}.f64", out, upper, t.temporary("f64.u32", t.temporary("low.b64", value)))
    else:
        raise Unsupported(".".join(parts), t.line)


def _float_to_integer(t: Translator, dst: str, src: str, value: Register, out: str) -> None:
    """Values outside the integer's range saturate, NaN gives 0."""
    if INTEGERS[dst][1] >= 32:
        t.vector(f"{dst}.{src}", out, value)
        return
    low, high = RANGE[dst]
    whole = t.temporary(f"s32.{src}", value)
    whole = t.temporary("max.s32", whole, t.constant(low, 4))
    t.vector("min.s32", out, whole, t.constant(high, 4))


def _float_to_float(t: Translator, dst: str, src: str, value: Register, out: str, modes: set[str],
                    parts: list[str]) -> None:  # fmt: skip
    mode = next((m for m in ("rz", "rm", "rp") if m in modes), None)
    if dst in ("f16", "bf16"):
        if mode or src == "f64":
            wide = value if src == "f64" else t.temporary("f64.f32", value)
            t.vector(f"{dst}.{mode or 'rn'}.f64", out, wide)
        else:
            t.vector(f"{dst}.f32", out, value)
        for name, row in (("ftz", "ftz"), ("relu", "relu"), ("sat", "saturate")):
            if name in modes:
                t.vector(f"{row}.{dst}", out, out)
        return
    if "relu" in modes:
        raise Unsupported(".".join(parts), t.line)
    if dst not in ("f32", "f64") or (mode and (dst, src) != ("f32", "f64")):
        raise Unsupported(".".join(parts), t.line)
    if dst == src:
        t.vector("mov.b32" if dst == "f32" else "mov.b64", out, value)
    else:
        t.vector(f"narrow.{mode}.f32" if mode else f"{dst}.{src}", out, value)
    if "sat" in modes:
        t.vector(f"saturate.{dst}", out, out)
    if "ftz" in modes and dst == "f32":
        t.vector("ftz.f32", out, out)
