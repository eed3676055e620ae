"""A whole campaign with a judge that is a formula: what is written, what a second run does, how it ends."""

import json
import time

import pytest

from components.campaign.plan import parse_problems
from components.campaign.run import Campaign, start_session
from components.campaign.search import PRUNED, SearchSettings
from components.campaign.sets import parse_generated, sources
from components.campaign.shards import Folder, read_table, shards_of
from components.errors import SparseRLError, UserError
from tests.campaign.fake_judge import FakeJudge

PROBLEMS = parse_problems("spmv:float32,spmm8:float32")
SETTINGS = SearchSettings(representatives=1, rounds=2, batch=8, per_problem=16)
SPECS = ("uniform,rmat:1000:0", "stencil2d:1500:1")


def formula(family, parameters, matrix):
    if family == "coo_segmented":
        return None
    return 4.0 + len(family) / 10 + parameters.get("block", 0) / 1000 + (parameters.get("load") == "plain")


def campaign(path, judge, window=1, problems=PROBLEMS, specs=SPECS, settings=SETTINGS, **more):
    with Folder(path) as folder:
        session, row = start_session(judge, ["test"], {"backend": "gpu", "cuda": "13.0"})
        folder.append("sessions", [row])
        return Campaign(judge, folder, session, problems, settings, **more).run(
            sources(None, specs, 0, 0, 0, 0), window
        )


def table(path, name="measurements"):
    return [line.row for line in read_table(path, name)]


def identity(row):
    return row["matrix"], row["operator"], row["width"], row["dtype"], row["phase"], row["round"], row["program_hash"]


def test_every_problem_is_searched_and_its_winners_measured_again(tmp_path):
    judge = FakeJudge(formula, fresh_us=0.5)
    tally = campaign(tmp_path, judge, window=3)
    assert (tally.done, tally.before, tally.refused, tally.failed) == (6, 0, 0, [])
    rows = table(tmp_path)
    assert len(rows) == tally.judged + tally.finals + tally.pruned
    assert len({identity(row) for row in rows}) == len(rows)
    assert tally.judged == len(judge.asked)
    assert tally.finals == len(judge.again)
    assert {row["phase"] for row in rows} == {"search", "final"}
    for row in rows:
        if row["status"] == "correct":
            program = formula(row["family"], json.loads(row["parameters"]), None)
            assert row["time_us"] == program + (0.5 if row["phase"] == "final" else 0.0)
            assert row["bytes_stored"] == 8 * row["nnz"] + 4 * (row["rows"] + 1)
            assert (row["gpu"], row["driver"], row["timing"], row["sm_mhz"]) == ("Fake GPU", "580", "measured", 1980.0)
        else:
            assert (row["status"], row["time_us"], row["timing"], row["speedup"]) == ("wrong", None, None, None)
    assert sum(row["gpu_seconds"] for row in rows) == pytest.approx(judge.gpu_seconds(), abs=0.01)
    sides = {name: table(tmp_path, name) for name in ("sources", "matrices", "problems", "sessions")}
    assert {row["program_hash"] for row in rows} == {row["program_hash"] for row in sides["sources"]}
    assert len(sides["sources"]) == len({row["program_hash"] for row in sides["sources"]})
    assert len(sides["matrices"]) == 3
    assert len(sides["problems"]) == 6
    assert {row["outcome"] for row in sides["problems"]} == {"done"}


def test_a_second_run_finds_everything_done(tmp_path):
    campaign(tmp_path, FakeJudge(formula))
    judge = FakeJudge(formula)
    tally = campaign(tmp_path, judge)
    assert (tally.done, tally.before, judge.batches) == (0, 6, 0)
    more = campaign(tmp_path, judge, problems=parse_problems("spmv:float32,spmm8:float32,spmm32:float32"))
    assert (more.done, more.before) == (3, 6)


def test_a_crash_costs_the_batch_under_way_and_the_second_run_ends_alike(tmp_path):
    whole = FakeJudge(formula)
    campaign(tmp_path / "whole", whole)
    expected = {identity(row): row["time_us"] for row in table(tmp_path / "whole")}

    def crash(batch):
        if batch == crash.at:
            raise RuntimeError("power cut")

    for crash.at in range(1, whole.batches + 1, 4):
        path = tmp_path / str(crash.at)
        first = FakeJudge(formula, before=crash)
        with pytest.raises(RuntimeError, match="power cut"):
            campaign(path, first)
        second = FakeJudge(formula)
        campaign(path, second)
        assert {identity(row): row["time_us"] for row in table(path)} == expected
        assert first.asked + second.asked == whole.asked
        assert first.again + second.again == whole.again


def test_after_a_torn_shard_only_the_torn_batch_is_judged_again(tmp_path):
    whole = FakeJudge(formula)
    campaign(tmp_path, whole)
    expected = {identity(row): row["time_us"] for row in table(tmp_path)}
    for name, cut in (("measurements", 5), ("problems", 5)):  # the last batch and the note that its problem is done
        (shard,) = shards_of(tmp_path, name)
        shard.write_bytes(shard.read_bytes()[:-cut])
    lost = expected.keys() - {identity(row) for row in table(tmp_path)}
    assert 0 < len(lost) <= SETTINGS.batch
    judge = FakeJudge(formula)
    tally = campaign(tmp_path, judge)
    assert (tally.done, tally.before) == (1, 5)
    assert len(judge.asked) + len(judge.again) == len(lost)
    assert {identity(row): row["time_us"] for row in table(tmp_path)} == expected


def test_no_batch_begins_when_the_budget_is_spent_or_the_process_is_to_end(tmp_path):
    judge = FakeJudge(formula)
    tally = campaign(tmp_path, judge, deadline=time.monotonic())
    assert (judge.batches, tally.done) == (0, 0)
    with Folder(tmp_path) as folder:
        session, _ = start_session(judge, [], {})
        running = Campaign(judge, folder, session, PROBLEMS, SETTINGS)

        def stop(batch):
            if batch == 2:
                running.stop.set()

        judge.before = stop
        tally = running.run(sources(None, SPECS, 0, 0, 0, 0), 1)
    assert judge.batches == 2
    assert len(table(tmp_path)) == tally.judged == len(judge.asked)


def test_a_matrix_that_fails_is_named_and_the_others_are_done(tmp_path):
    def fail(family, parameters, matrix):
        if matrix.name.startswith("rmat"):
            raise SparseRLError("no library product works")
        return formula(family, parameters, matrix)

    tally = campaign(tmp_path, FakeJudge(fail))
    assert tally.done == 4
    assert tally.failed == ["gen-rmat-0/rmat-1000-0: no library product works"]
    again = campaign(tmp_path, FakeJudge(formula))
    assert (again.done, again.before, again.failed) == (2, 4, [])


def test_what_cannot_be_asked_is_refused_once(tmp_path):
    def refuse(family, parameters, matrix):
        if family.startswith("spmm"):
            raise UserError("width 8: a dense operand too large")
        return formula(family, parameters, matrix)

    tally = campaign(tmp_path, FakeJudge(refuse))
    assert (tally.done, tally.refused) == (3, 3)
    assert {row["operator"]: row["outcome"] for row in table(tmp_path, "problems")} == {
        "spmv": "done",
        "spmm": "refused",
    }
    assert campaign(tmp_path, FakeJudge(refuse)).before == 6


def test_what_cannot_win_is_pruned_and_says_its_floor(tmp_path):
    # 2e6 entries: COO's 12 bytes each are 24 MB, 3 us at 8 TB/s; the best is said to take 1 us.
    judge = FakeJudge(lambda family, parameters, matrix: 1.0 if family == "csr_scalar" else 5.0)
    settings = SearchSettings(representatives=1, rounds=1, batch=1, prune_factor=1.5)
    tally = campaign(tmp_path, judge, problems=PROBLEMS[:1], specs=("short-rows:2e6:0",), settings=settings)
    pruned = [row for row in table(tmp_path) if row["status"] == PRUNED]
    assert len(pruned) == tally.pruned > 0
    for row in pruned:
        assert row["floor_us"] > 1.5
        assert (row["time_us"], row["timing"], row["code_hash"], row["bytes_stored"]) == (None,) * 4
    assert not {row["program_hash"] for row in pruned} & set(judge.asked)
    again = FakeJudge(judge.time_us)
    assert campaign(tmp_path, again, problems=PROBLEMS[:1], specs=("short-rows:2e6:0",), settings=settings).before == 1


def test_rows_of_another_gpu_are_no_rows_of_this_one(tmp_path):
    campaign(tmp_path, FakeJudge(formula), problems=PROBLEMS[:1])
    other = FakeJudge(formula)
    other.gpu = {"gpu": "Another GPU", "driver": "580"}
    assert campaign(tmp_path, other, problems=PROBLEMS[:1]).done == 3


def test_sets_of_matrices(tmp_path):
    assert parse_generated("rmat,uniform:1e4,2e4:1,2") == [
        (family, nnz, seed) for family in ("rmat", "uniform") for nnz in (10_000, 20_000) for seed in (1, 2)
    ]
    assert len(parse_generated("all:1e6")) >= 13
    for bad in ("rmat", "rmat:x", "none:1000", "rmat:1000:x"):
        with pytest.raises(UserError, match="generated"):
            parse_generated(bad)
    with pytest.raises(UserError, match="no matrix"):
        sources(None, [], 0, 0, 0, 0)
    few = sources(None, ["all:1000:0,1,2"], 0, 0, 13, 0)
    assert len({source.stratum for source in few}) == 13
    assert [s.name for s in few] == [s.name for s in sources(None, ["all:1000:0,1,2"], 0, 0, 13, 0)]
    assert few[0].load().id == few[0].name
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "m.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 1\n")
    (found,) = sources(tmp_path, [], 1, 0, 0, 0)
    assert (found.name, found.load().id) == ("g/m", "g/m")
