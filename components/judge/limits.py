"""Limits that the operating system enforces on what a worker does."""

import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limits(cpu_s: float, memory_mb: int | None) -> Iterator[None]:
    """Bound the CPU time and the growth of the address space of what runs inside; the kernel ends the process.

    CPU time and not wall time, so that a busy machine changes no verdict.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    if memory_mb is not None:
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (memory_mb << 20), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
        if memory_mb is not None:
            resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
