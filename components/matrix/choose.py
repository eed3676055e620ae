"""A seeded choice of a few matrices out of many that gives every class its turn."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


def stratified_choice(items: Sequence[Item], strata: Sequence[str], count: int, seed: int) -> list[Item]:
    """Choose up to `count` items, taking one from each stratum in turn until enough are chosen.

    Args:
        items: candidates, in an order that does not depend on the machine.
        strata: the class of each.
        count: how many; all of them when there are no more.
        seed: of the order within a stratum.

    Returns:
        The chosen items in their original order.
    """
    rng = np.random.default_rng(seed)
    queues: dict[str, list[int]] = {}
    for position in rng.permutation(len(items)):
        queues.setdefault(strata[position], []).append(int(position))
    chosen: list[int] = []
    while queues and len(chosen) < count:
        for name in sorted(queues):
            if len(chosen) < count:
                chosen.append(queues[name].pop())
            if not queues[name]:
                del queues[name]
    return [items[position] for position in sorted(chosen)]
