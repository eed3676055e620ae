"""Device memory with nothing mapped before and behind it, so that a program that leaves it far enough faults at once.

Through the driver's virtual memory management (cuMemAddressReserve and its kin, CUDA 10.2 on). A block ends where its
mapping ends; before its start lies what rounding up to the mapping's granularity leaves.
"""

import importlib
from typing import Any

from components.errors import SparseRLError


class GuardsMissing(SparseRLError):
    """This driver, GPU or installation offers no such memory; the message says what failed."""


class GuardedMemory:
    """Allocates on device 0 of the current context.

    Args:
        driver: cuda.bindings.driver, or a test's.

    Raises:
        GuardsMissing: the device offers none.
    """

    def __init__(self, driver: Any = None) -> None:
        if driver is None:
            try:
                driver = importlib.import_module("cuda.bindings.driver")
            except ImportError as error:
                raise GuardsMissing(f"cuda-bindings: {error}") from None
        self.driver = driver
        on_device = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self._properties = driver.CUmemAllocationProp()
        self._properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._properties.location.type, self._properties.location.id = on_device, 0
        self._access = driver.CUmemAccessDesc()
        self._access.location.type, self._access.location.id = on_device, 0
        self._access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granularity = int(self.call("cuMemGetAllocationGranularity", self._properties, least))
        self.alloc(256)  # whether all of it works, found here and not in the middle of a verdict

    def alloc(self, nbytes: int) -> "GuardedBlock":
        """A block whose end is the end of its mapping; `nbytes` a multiple of 256, so that it is aligned to that.

        Raises:
            GuardsMissing: the driver refuses.
        """
        if nbytes <= 0 or nbytes % 256:
            raise ValueError(f"{nbytes} bytes: expected a positive multiple of 256")
        mapped = -(-nbytes // self.granularity) * self.granularity
        return GuardedBlock(self, nbytes, mapped)

    def call(self, name: str, *arguments: Any) -> Any:
        """A driver function's result; GuardsMissing when it fails."""
        status, *rest = getattr(self.driver, name)(*arguments)
        if int(status) != 0:
            raise GuardsMissing(f"{name}: {status}")
        return rest[0] if rest else None

    def map(self, mapped: int) -> tuple[int, Any]:
        """(address of a mapping of `mapped` bytes with one granule of nothing on either side, handle)."""
        around = self.granularity
        reserved = int(self.call("cuMemAddressReserve", mapped + 2 * around, around, 0, 0))
        try:
            handle = self.call("cuMemCreate", mapped, self._properties, 0)
            try:
                self.call("cuMemMap", reserved + around, mapped, 0, handle, 0)
                self.call("cuMemSetAccess", reserved + around, mapped, [self._access], 1)
            except GuardsMissing:
                self.driver.cuMemRelease(handle)
                raise
        except GuardsMissing:
            self.driver.cuMemAddressFree(reserved, mapped + 2 * around)
            raise
        return reserved + around, handle

    def unmap(self, start: int, mapped: int, handle: Any) -> None:
        """Give a mapping back; a context that is lost takes it along, so failures say nothing."""
        self.driver.cuMemUnmap(start, mapped)
        self.driver.cuMemRelease(handle)
        self.driver.cuMemAddressFree(start - self.granularity, mapped + 2 * self.granularity)


class GuardedBlock:
    """Device memory, freed with the object; see `GuardedMemory.alloc`."""

    def __init__(self, memory: GuardedMemory, nbytes: int, mapped: int) -> None:
        self._memory, self._mapped = memory, mapped
        self._start, self._handle = memory.map(mapped)
        self.nbytes = nbytes
        self.ptr = self._start + mapped - nbytes

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._memory.unmap(self._start, self._mapped, self._handle)
