"""Limits that the operating system enforces on what a worker does."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

CPU_SIGNAL = signal.SIGPROF  # ends a worker whose CPU time has run out


@contextmanager
def limits(cpu_s: float, memory_mb: int | None) -> Iterator[None]:
    """Bound the CPU time and the growth of the address space of what runs inside; the kernel ends the process.

    CPU time and not wall time, so that a busy machine changes no verdict. By a profiling timer and not RLIMIT_CPU,
    because NVRTC sets that one back to infinity.

    Args:
        cpu_s: seconds, over all threads of the process.
        memory_mb: None leaves memory alone.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if memory_mb is not None:
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (memory_mb << 20), hard))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if memory_mb is not None:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def prepare() -> None:
    """Open what `limits` reads about this process; call it before files can no longer be opened."""
    global _statm
    _statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def _address_space() -> int:
    if _statm is None:
        prepare()
    assert _statm is not None
    return int(os.pread(_statm, 100, 0).split()[0]) * resource.getpagesize()


_statm: int | None = None  # of this process: a forked one calls `prepare` again
