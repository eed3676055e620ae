"""Leave out files that say again what an earlier one said: exact copies by hash, near copies by MinHash.

Similarity is the Jaccard index of the sets of token 5-shingles (Broder 1997, "On the resemblance and containment of
documents"). MinHash with locality-sensitive hashing only proposes candidates; each is then compared exactly, so that
the threshold means what it says.
"""

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHINGLE = 5
PERMUTATIONS = 64
BANDS, ROWS = 16, 4  # a pair of similarity s is proposed with probability 1 - (1 - s**4)**16: 0.9998 at 0.8
_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass
class Deduplicator:
    """Remembers the files kept so far; ask `verdict` for each new one in turn.

    similarity: Jaccard index from which a file counts as a copy, in (0, 1].
    """

    similarity: float
    _texts: set[bytes] = field(default_factory=set)
    _kept: "list[NDArray[np.uint64]]" = field(default_factory=list)
    _index: Any = None
    _tokens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from datasketch import MinHashLSH

        self._index = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, ROWS), prepickle=False)
        draw = np.random.default_rng(1)
        self._multiply = draw.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._add = draw.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64)

    def verdict(self, text: str) -> str:
        """ "exact duplicate", "near duplicate", or empty: then the text is remembered."""
        from datasketch import MinHash

        digest = hashlib.sha256(text.encode()).digest()
        if digest in self._texts:
            return "exact duplicate"
        shingles = self.shingles(text)
        signature = MinHash(
            num_perm=PERMUTATIONS,
            hashvalues=self._signature(shingles),
            permutations=(self._multiply, self._add),
            scheme="affine64",
        )
        for key in sorted(self._index.query(signature)):
            if jaccard(shingles, self._kept[key]) >= self.similarity:
                return "near duplicate"
        self._texts.add(digest)
        self._index.insert(len(self._kept), signature)
        self._kept.append(shingles)
        return ""

    def shingles(self, text: str) -> "NDArray[np.uint64]":
        """Sorted distinct 64-bit hashes of the runs of five tokens; one run of what there is in a shorter text."""
        known = self._tokens
        tokens = _TOKEN.findall(text)
        for token in set(tokens):
            if token not in known:
                known[token] = int.from_bytes(hashlib.blake2b(token.encode(), digest_size=8).digest(), "little")
        codes = np.fromiter((known[token] for token in tokens), np.uint64, len(tokens))
        width = min(SHINGLE, len(codes))
        total = np.zeros(len(codes) - width + 1, np.uint64)
        for place in range(width):
            total = total * np.uint64(0x9E3779B97F4A7C15) + codes[place : len(codes) - width + 1 + place]
        return np.unique(total)

    def _signature(self, shingles: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
        """For each permutation the least value of (multiply * shingle + add) mod 2^64."""
        least = np.full(PERMUTATIONS, np.iinfo(np.uint64).max, np.uint64)
        for start in range(0, len(shingles), 4096):  # in pieces that stay in the cache
            block = shingles[start : start + 4096, None] * self._multiply + self._add
            np.minimum(least, block.min(axis=0), out=least)
        return least


def jaccard(a: "NDArray[np.uint64]", b: "NDArray[np.uint64]") -> float:
    """|a and b| / |a or b| of two sorted arrays without repeats."""
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / max(1, len(a) + len(b) - common)
