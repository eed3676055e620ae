"""A verdict as text for people."""

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
    Status.CORRECT: "right on this matrix and on the adversarial set",
}


def format_verdict(verdict: Verdict) -> str:
    """What failed and where; or, for a correct program, its time, baseline, resources and conversion cost."""
    lines = [f"{verdict.status}: {_MEANING[verdict.status]}" + (" (from the cache)" if verdict.from_cache else "")]
    if verdict.message:
        lines.append(f"  {'note' if verdict.correct else 'what':<11}{verdict.message}")
    if place := _place(verdict):
        lines.append(f"  {'where':<11}{place}")
    if verdict.correct:
        lines += _correct(verdict)
    if verdict.registers is not None:
        lines.append(
            f"  {'resources':<11}{verdict.registers} registers, {verdict.spill_bytes} bytes spilled, "
            f"{verdict.shared_bytes} bytes shared"
        )
    made = ", ".join(str(part) for part in (verdict.compiler, verdict.arch, verdict.gpu) if part)
    if made:
        lines.append(f"  {'compiled':<11}{made}" + _in_ms(verdict.compile_ms))
    return "\n".join(lines)


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
    if verdict.time_us is not None:
        kind = "modelled, uncalibrated" if verdict.timing == "modelled" else "measured"
        spread = f" (p10 {verdict.p10_us:.2f}, p90 {verdict.p90_us:.2f})" if verdict.p10_us and verdict.p90_us else ""
        lines.append(f"  {'time':<11}{verdict.time_us:.2f} us {kind}{spread}")
    if verdict.baseline_us is not None and verdict.speedup is not None:
        interval = ""
        if verdict.speedup_interval is not None:
            interval = " ({:.2f} to {:.2f})".format(*verdict.speedup_interval)
        speedup = f"speed-up {verdict.speedup:.2f}{interval}"
        lines.append(f"  {'baseline':<11}{verdict.baseline_us:.2f} us {verdict.baseline}, {speedup}")
    if verdict.reliable is False:
        lines.append(f"  {'caution':<11}the ratio is unreliable: noisy, or under the physical floor")
    if verdict.bytes_moved is not None and verdict.time_us:
        rate = verdict.bytes_moved / verdict.time_us / 1e3
        lines.append(f"  {'traffic':<11}{verdict.bytes_moved} bytes, {rate:.0f} GB/s")
    if verdict.convert_us is not None:
        pays = "never pays" if verdict.break_even is None else f"pays after {verdict.break_even:.0f} products"
        lines.append(f"  {'convert':<11}{verdict.format}: {verdict.convert_us:.0f} us on the host, {pays}")
    return lines


def _in_ms(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f", {milliseconds:.0f} ms"
