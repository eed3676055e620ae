"""A memory of results bounded by their bytes."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Memo(Generic[V]):
    """Least recently used out first; one thread at a time.

    Args:
        max_bytes: limit of the sum of what `size` says.
        size: bytes of one value.
    """

    def __init__(self, max_bytes: int, size: Callable[[V], int]):
        self.max_bytes, self._size = max_bytes, size
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of `key`, made when it is not remembered; one over the whole limit is not kept."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = make()
        size = self._size(value)
        if size <= self.max_bytes:
            self._values[key] = value
            self._bytes += size
            while self._bytes > self.max_bytes:
                _, old = self._values.popitem(last=False)
                self._bytes -= self._size(old)
        return value
