import gzip
import json

import pytest

from components.campaign.shards import Folder, read_table, shards_of
from components.errors import UserError


def rows(*numbers):
    return [{"n": number} for number in numbers]


def numbers(path, table="t"):
    return [line.row["n"] for line in read_table(path, table)]


def test_what_is_written_is_read_in_order_with_its_place(tmp_path):
    with Folder(tmp_path) as folder:
        folder.append("t", rows(1, 2))
        folder.append("other", rows(9))
        folder.append("t", [])
        folder.append("t", rows(3))
    lines = list(read_table(tmp_path, "t"))
    assert [(line.shard.name, line.number, line.row) for line in lines] == [
        ("t-00000.jsonl.gz", 1, {"n": 1}),
        ("t-00000.jsonl.gz", 2, {"n": 2}),
        ("t-00000.jsonl.gz", 3, {"n": 3}),
    ]
    assert numbers(tmp_path, "other") == [9]
    with gzip.open(tmp_path / "t-00000.jsonl.gz", "rt") as file:  # any tool reads a shard
        assert [json.loads(line)["n"] for line in file] == [1, 2, 3]


def test_every_prefix_of_a_shard_gives_the_batches_that_are_whole(tmp_path):
    ends = [0]
    with Folder(tmp_path) as folder:
        for batch in range(4):
            folder.append("t", rows(2 * batch, 2 * batch + 1))
            ends.append((tmp_path / "t-00000.jsonl.gz").stat().st_size)
    whole = (tmp_path / "t-00000.jsonl.gz").read_bytes()
    for length in range(len(whole) + 1):
        (tmp_path / "t-00000.jsonl.gz").write_bytes(whole[:length])
        kept = sum(end <= length for end in ends[1:])
        assert numbers(tmp_path) == list(range(2 * kept)), length


def test_after_a_torn_batch_writing_goes_on_in_a_new_shard(tmp_path):
    with Folder(tmp_path) as folder:
        folder.append("t", rows(1))
        folder.append("t", rows(2))
    first = tmp_path / "t-00000.jsonl.gz"
    first.write_bytes(first.read_bytes()[:-3])
    with Folder(tmp_path) as folder:
        folder.append("t", rows(3))
        folder.append("t", rows(4))
    with Folder(tmp_path) as folder:  # the new one ends well: it is gone on with
        folder.append("t", rows(5))
    assert numbers(tmp_path) == [1, 3, 4, 5]
    assert len(shards_of(tmp_path, "t")) == 2


def test_shards_stay_under_their_size(tmp_path):
    with Folder(tmp_path, max_bytes=200) as folder:
        for number in range(20):
            folder.append("t", rows(number))
    with Folder(tmp_path, max_bytes=200) as folder:
        for number in range(20, 30):
            folder.append("t", rows(number))
    assert numbers(tmp_path) == list(range(30))
    sizes = [shard.stat().st_size for shard in shards_of(tmp_path, "t")]
    assert max(sizes) <= 200
    assert len(sizes) > 3


def test_damage_within_a_shard_is_named(tmp_path):
    with Folder(tmp_path) as folder:
        folder.append("t", rows(*range(100)))
        folder.append("t", rows(1))
    path = tmp_path / "t-00000.jsonl.gz"
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"t-00000\.jsonl\.gz: byte 0: damaged"):
        numbers(tmp_path)


def test_a_line_that_is_no_object_is_named(tmp_path):
    (tmp_path / "t-00000.jsonl.gz").write_bytes(gzip.compress(b'{"n":1}\n[2]\n'))
    with pytest.raises(UserError, match=r"t-00000\.jsonl\.gz: line 2: \[2\], expected a JSON object"):
        numbers(tmp_path)


def test_two_writers_and_values_that_json_lacks_are_refused(tmp_path):
    with Folder(tmp_path) as folder:
        with pytest.raises(UserError, match="another campaign is writing there"):
            Folder(tmp_path)
        with pytest.raises(ValueError, match="not JSON compliant"):
            folder.append("t", [{"n": float("nan")}])
    Folder(tmp_path).__exit__()
