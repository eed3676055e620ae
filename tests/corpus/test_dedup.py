"""Copies are found, and only copies."""

import numpy as np

from components.corpus.dedup import Deduplicator, jaccard


def words(rng: np.random.Generator, count: int) -> list[str]:
    return [f"w{value}" for value in rng.integers(0, 10**6, count)]


def test_jaccard_of_known_sets() -> None:
    a, b = np.array([1, 2, 3, 4], np.uint64), np.array([3, 4, 5], np.uint64)
    assert jaccard(a, b) == 2 / 5
    assert jaccard(a, a) == 1.0
    assert jaccard(a, a[:0]) == 0.0


def test_shingles_ignore_layout_but_not_order() -> None:
    copies = Deduplicator(0.8)
    one = copies.shingles("a b c d e f")
    assert len(one) == 2
    assert np.array_equal(one, copies.shingles("a  b\n\tc d e f"))
    assert jaccard(one, copies.shingles("f e d c b a")) == 0.0
    assert len(copies.shingles("x = y;")) == 1
    assert np.array_equal(one, Deduplicator(0.8).shingles("a b c d e f"))  # no state of the object in a hash


def test_exact_and_near_copies() -> None:
    rng = np.random.default_rng(3)
    text = words(rng, 400)
    copies = Deduplicator(0.8)
    assert copies.verdict(" ".join(text)) == ""
    assert copies.verdict(" ".join(text)) == "exact duplicate"
    assert copies.verdict("\n".join(text)) == "near duplicate"
    few = text.copy()
    for place in (50, 150, 250):
        few[place] = "changed"
    assert copies.verdict(" ".join(few)) == "near duplicate"  # 15 of 396 shingles differ on each side: 0.93
    many = text.copy()
    for place in range(0, 400, 20):
        many[place] = f"changed{place}"
    assert copies.verdict(" ".join(many)) == ""  # 5 in 20 shingles differ: 0.6


def test_threshold_is_exact_and_a_parameter() -> None:
    """300 shingles in common, 60 apart on each side: 300 / 420 = 0.714."""
    rng = np.random.default_rng(4)
    common, left, right = words(rng, 304), words(rng, 60), words(rng, 60)
    for similarity, verdict in ((0.72, ""), (0.71, "near duplicate")):
        copies = Deduplicator(similarity)
        assert copies.verdict(" ".join(common + left)) == ""
        assert copies.verdict(" ".join(common + right)) == verdict


def test_no_pair_at_the_threshold_is_missed() -> None:
    """Compared with all pairs exactly: the proposals of the hashing lose none above 0.8 in 60 families."""
    rng = np.random.default_rng(5)
    copies = Deduplicator(0.8)
    for _ in range(60):
        base = words(rng, 300)
        assert copies.verdict(" ".join(base)) == ""
        changed = base.copy()
        changed[rng.integers(0, 300)] = "other"
        changed[rng.integers(0, 300)] = "more"
        assert copies.verdict(" ".join(changed)) == "near duplicate"


def test_empty_and_tiny_texts() -> None:
    copies = Deduplicator(0.8)
    assert copies.verdict("a") == ""
    assert copies.verdict("a ") == "near duplicate"
    assert copies.verdict("") == ""
