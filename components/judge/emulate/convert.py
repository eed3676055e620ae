"""cvt: between integers, f32, f64, f16 and bf16, with the roundings and saturation that NVRTC emits."""

from components.judge.emulate.ptx_text import Unsupported
from components.judge.emulate.translate import Register, Translator

INTEGERS = {f"{s}{n}": (s, n) for s in "su" for n in (8, 16, 32, 64)}
ROUND_INTEGER = ("rni", "rmi", "rpi", "rzi")
ALLOWED = {"rn", "rz", "rm", "rp", *ROUND_INTEGER, "ftz", "sat"}
RANGE = {"s8": (-128, 127), "u8": (0, 255), "s16": (-32768, 32767), "u16": (0, 65535)}


def convert(t: Translator, parts: list[str], o: list[str]) -> None:
    """cvt{.rounding}{.ftz}{.sat}.dst.src d, a{, b}."""
    dst, src, modes = parts[-2], parts[-1], set(parts[1:-2])
    if not modes <= ALLOWED:
        raise Unsupported(".".join(parts), t.line)
    if dst in ("f16x2", "bf16x2"):
        if src != "f32" or modes != {"rn"} or len(o) != 3:
            raise Unsupported(".".join(parts), t.line)
        t.vector(f"{dst}.f32", o[0], o[1], o[2])
        return
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
    rounding = next((m for m in ROUND_INTEGER if m in modes), None)
    if rounding:
        value = t.temporary(f"{rounding}.{src}", value)
    if dst in INTEGERS:
        if not rounding:
            raise Unsupported(".".join(parts), t.line)
        _float_to_integer(t, dst, src, value, o[0])
    else:
        _float_to_float(t, dst, src, value, o[0], modes, parts)


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
    source_sign, source_bits = INTEGERS[src]
    if clamp:
        if dst not in RANGE or source_bits > 32:
            raise Unsupported(".".join(parts), t.line)
        low, high = RANGE[dst]
        if source_sign == "s":
            value = t.temporary("max.s32", value, t.constant(low, 4))
        value = t.temporary(f"min.{source_sign}32", value, t.constant(high, 4))
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
    if dst in ("f16", "bf16") and mode is None and bits < 64:
        t.vector(f"{dst}.f32", out, t.temporary(f"f32.{name}", value))
    elif mode is None and dst in ("f32", "f64"):
        t.vector(f"{dst}.{name}", out, value)
    elif dst == "f32" and bits < 64:
        t.vector(f"narrow.{mode}.f32", out, t.temporary(f"f64.{name}", value))
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
        if src != "f32" or mode or "sat" in modes:
            raise Unsupported(".".join(parts), t.line)
        t.vector(f"{dst}.f32", out, value)
        return
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
