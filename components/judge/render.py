"""A verdict as text for people."""

from components.judge.standing import standing
from components.judge.verdict import Status, Verdict

_MEANING = {
    Status.UNPARSABLE: "not a kernel program",
    Status.CONTRACT: "breaks its contract",
    Status.COMPILE_ERROR: "does not compile",
    Status.LAUNCH_ERROR: "cannot be launched",
    Status.ILLEGAL_ACCESS: "touches memory that is not its own",
    Status.RACE: "result depends on the order of its threads",
    Status.TIMEOUT: "does not end in time",
    Status.TAMPERED: "does what a kernel has no business doing",
    Status.WRONG: "wrong answer",
    Status.UNSUPPORTED: "the interpreter cannot run it; judge it on a GPU",
    Status.CORRECT: "right on this pattern (its values redrawn) and on the adversarial patterns",
}


def format_verdict(verdict: Verdict, source: str = "") -> str:
    """What failed and where; or, for a correct program, its time, baseline, resources and conversion cost.

    Args:
        verdict: of the judge.
        source: the program, to quote the line that is to blame.
    """
    exact = "" if verdict.precision == "float32" else f", {verdict.precision}"
    known = " (from the cache)" if verdict.from_cache else ""
    lines = [f"{verdict.status}: {_MEANING[verdict.status]}{exact}{known}"]
    if verdict.message:
        lines.append(_line("note" if verdict.correct else "what", verdict.message))
    if place := _place(verdict):
        lines.append(_line("where", place))
    text = source.split("\n")
    if verdict.line is not None and 1 <= verdict.line <= len(text) and text[verdict.line - 1].strip():
        lines.append(_line("source", f"{verdict.line}: {text[verdict.line - 1].strip()}"[:140]))
    if verdict.correct:
        lines += _correct(verdict)
    if verdict.registers is not None:
        lines.append(
            _line(
                "resources",
                f"{verdict.registers} registers, {verdict.spill_bytes} bytes spilled, "
                f"{verdict.shared_bytes} bytes shared",
            )
        )
    made = ", ".join(str(part) for part in (verdict.compiler, verdict.arch, verdict.gpu) if part)
    if made:
        lines.append(_line("compiled", made + _in_ms(verdict.compile_ms)))
    return "\n".join(lines)


def _line(label: str, text: str) -> str:
    return f"  {label:<11}{text}"


def _place(verdict: Verdict) -> str:
    parts = []
    if verdict.line is not None:
        parts.append(f"line {verdict.line}")
    if verdict.block is not None:
        parts.append("block " + ",".join(map(str, verdict.block)))
    if verdict.thread is not None:
        parts.append(f"thread {verdict.thread}")
    if verdict.failed_on is not None:
        parts.append(f"on matrix {verdict.failed_on}")
    return ", ".join(parts)


def _correct(verdict: Verdict) -> list[str]:
    lines = []
    place = verdict.gpu or verdict.arch
    kind = standing(verdict.arch or "") if verdict.timing == "modelled" else "measured"
    if verdict.time_us is not None:
        spread = f" (p10 {verdict.p10_us:.2f}, p90 {verdict.p90_us:.2f})" if verdict.p10_us and verdict.p90_us else ""
        lines.append(_line("time", f"{verdict.time_us:.2f} us on {place}, L2 warm, {kind}{spread}"))
    if verdict.baseline_us is not None:
        speedup = _speedup(verdict.speedup, verdict.speedup_interval, verdict)
        taken = f", {verdict.samples} samples" if verdict.samples else ""
        lines.append(_line("baseline", f"{verdict.baseline_us:.2f} us {verdict.baseline}{speedup}{taken}"))
    if verdict.time_cold_us is not None:
        speedup = _speedup(verdict.speedup_cold, verdict.speedup_cold_interval, verdict)
        over = f" over {verdict.baseline}" if speedup else ""
        lines.append(_line("cold", f"{verdict.time_cold_us:.2f} us on {place}, L2 cold, {kind}{speedup}{over}"))
    if verdict.baselines:
        ranked = sorted(verdict.baselines.items(), key=lambda pair: pair[1])
        lines.append(
            _line("libraries", ", ".join(f"{name} {time_us:.2f}" for name, time_us in ranked) + " us, L2 warm")
        )
    if verdict.reliable is False:
        why = verdict.unreliable_because or "noisy, or under the physical floor"
        lines.append(_line("caution", f"do not quote these times: {why}"))
    if verdict.bytes_moved is not None and verdict.time_us:
        rate = f"{verdict.bytes_moved} bytes, {verdict.bytes_moved / verdict.time_us / 1e3:.0f} GB/s"
        if verdict.floor_us:
            limit = f"{verdict.floor_us / verdict.time_us:.0%} of the physical limit ({verdict.floor_us:.2f} us)"
            rate = f"{rate}, {limit}"
        lines.append(_line("traffic", rate))
    if verdict.convert_us is not None and verdict.time_us is not None:
        pays = "never pays" if verdict.break_even is None else f"pays after {verdict.break_even:.0f} products"
        lines.append(_line("convert", f"{verdict.format}: {verdict.convert_us:.0f} us on the host, {pays}"))
    if verdict.clocks:
        held = f", held down: {verdict.clocks['throttle']}" if verdict.clocks.get("throttle") else ""
        seen = verdict.clocks
        clocks = f"SM {seen['sm_mhz']} MHz, memory {seen['memory_mhz']} MHz, {seen['temperature_c']} C{held}"
        lines.append(_line("clocks", clocks))
    return lines


def _speedup(value: float | None, interval: tuple[float, float] | None, verdict: Verdict) -> str:
    """Never without its baseline and its interval; a modelled one is a single value, and says so."""
    if value is None or verdict.baseline is None:
        return ""
    if interval is not None:
        return ", speed-up {:.2f} ({:.2f} to {:.2f}, 95 %)".format(value, *interval)
    return f", speed-up {value:.2f} (no interval: modelled)" if verdict.timing == "modelled" else ""


def _in_ms(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f", {milliseconds:.0f} ms"
