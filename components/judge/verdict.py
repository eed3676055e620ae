"""What the judge says of one (program, matrix, operator, architecture)."""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Literal, Self


class Status(StrEnum):
    """The status ladder, worst first; only `CORRECT` is a pass."""

    UNPARSABLE = "unparsable"
    CONTRACT = "contract"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    ILLEGAL_ACCESS = "illegal_access"
    RACE = "race"
    TIMEOUT = "timeout"
    TAMPERED = "tampered"
    WRONG = "wrong"
    UNSUPPORTED = "unsupported"
    CORRECT = "correct"

    @property
    def compiled(self) -> bool:
        """Whether the compiler accepted the program (the compile-rate numerator)."""
        return self not in (Status.UNPARSABLE, Status.CONTRACT, Status.COMPILE_ERROR)


Timing = Literal["measured", "modelled"]


@dataclass(frozen=True)
class Verdict:
    """One judgement. A field that was not obtained is None; modelled and measured times never share a table."""

    status: Status
    message: str = ""  # one line: what failed and what was expected; empty when correct
    line: int | None = None  # of the program's source, 1-based
    block: tuple[int, int, int] | None = None  # where on the device it failed
    thread: int | None = None  # linear index within the block
    failed_on: str | None = None  # the matrix (target or adversarial) on which it failed
    operator: str = "spmv"
    width: int = 1  # dense columns; 1 for spmv
    precision: str = "float32"
    arch: str | None = None  # sm_90, ...
    gpu: str | None = None  # the device's name, for a measured time
    timing: Timing | None = None
    time_us: float | None = None  # median, L2 warm
    p10_us: float | None = None
    p90_us: float | None = None
    cv: float | None = None  # coefficient of variation of the samples
    baseline: str | None = None  # its name
    baseline_us: float | None = None
    speedup: float | None = None  # baseline_us / time_us
    speedup_interval: tuple[float, float] | None = None  # 95 % bootstrap interval
    samples: int | None = None  # of each side, taken in turn
    time_cold_us: float | None = None  # median, L2 flushed before each run
    speedup_cold: float | None = None  # of the same baseline
    speedup_cold_interval: tuple[float, float] | None = None
    baselines: dict[str, float] | None = None  # every named baseline's time in microseconds, L2 warm
    floor_us: float | None = None  # no program can be faster: bytes over measured bandwidth, or an empty launch
    reliable: bool | None = None  # False: noise, throttling or the physical floor forbids quoting the time
    unreliable_because: str | None = None
    clocks: dict[str, float | str] | None = None  # sm_mhz, memory_mhz, temperature_c, throttle
    convert_us: float | None = None  # CSR -> the program's format, on the host
    break_even: float | None = None  # products after which the conversion has paid; None when it never does
    format: str | None = None  # the program's format line
    registers: int | None = None  # per thread, largest over the kernels
    spill_bytes: int | None = None
    shared_bytes: int | None = None  # static + dynamic, largest over the kernels
    bytes_moved: int | None = None  # counted by the interpreter, or the format's bytes on a GPU
    compiler: str | None = None  # NVRTC version
    driver: str | None = None
    compile_ms: float | None = None
    program_hash: str | None = None  # sha256 of the source
    code_hash: str | None = (
        None  # sha256 of the PTX without its line table: equal for programs that differ in text alone
    )
    from_cache: bool = False

    @property
    def correct(self) -> bool:
        """True only for a verified program."""
        return self.status is Status.CORRECT

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields replaced: as `dataclasses.replace`, which takes ten times as long."""
        if unknown := changes.keys() - _NAMES:
            raise TypeError(f"a verdict has no {', '.join(sorted(unknown))}")
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **changes)
        return copy

    def with_break_even(self) -> Self:
        """With the products after which the conversion has paid: conversion time over time saved per product."""
        if self.baseline_us is None or self.time_us is None or self.convert_us is None:
            return self
        saved = self.baseline_us - self.time_us
        return self.with_(break_even=self.convert_us / saved if saved > 0 else None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, every field present."""
        found = dict(self.__dict__)
        found["status"] = str(self.status)
        for name in ("baselines", "clocks"):
            if found[name] is not None:
                found[name] = dict(found[name])
        return found

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        data = dict(data, status=Status(data["status"]))
        for name in ("block", "speedup_interval", "speedup_cold_interval"):
            if data.get(name) is not None:
                data[name] = tuple(data[name])
        return cls(**data)


_NAMES = frozenset(field.name for field in fields(Verdict))
