"""From shards to parquet, and from rows whose answers are known to the table of results."""

import gzip
import json
import math

import numpy as np
import pandas as pd
import pytest

from components.campaign.ingest import ingest
from components.campaign.peers import family_speedups, forest
from components.campaign.plan import Problem
from components.campaign.summary import one_problem, results, summarise
from components.campaign.table import COLUMNS
from components.errors import UserError
from tests.campaign.fake_judge import FakeJudge
from tests.campaign.test_campaign_run import campaign, formula, table

SPMV = Problem("spmv", 1, "float32")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    path = tmp_path_factory.mktemp("shards")
    campaign(path, FakeJudge(formula, fresh_us=0.5))
    return path


def rewritten(shards, path, change):
    """A copy of the shards with the measurements changed, in two batches."""
    path.mkdir()
    for shard in shards.iterdir():
        (path / shard.name).write_bytes(shard.read_bytes())
    rows = table(shards)
    change(rows)
    lines = [json.dumps(row) + "\n" for row in rows]
    halves = ("".join(lines[:40]), "".join(lines[40:]))
    (path / "measurements-00000.jsonl.gz").write_bytes(b"".join(gzip.compress(half.encode()) for half in halves))
    return path


def test_ingest_keeps_every_row_and_value_in_compact_columns(shards, tmp_path):
    counts = ingest([shards], tmp_path / "k.parquet")
    frame = pd.read_parquet(tmp_path / "k.parquet")
    rows = table(shards)
    assert (counts["rows"], counts["repeated"], counts["problems"]) == (len(rows), 0, 6)
    assert list(frame.columns) == list(COLUMNS)
    assert (str(frame["time_us"].dtype), str(frame["family"].dtype)) == ("float32", "category")
    key = ["matrix", "operator", "program_hash", "phase", "round"]
    expected = pd.DataFrame(rows).set_index(key)["time_us"].sort_index().astype("float32")
    found = frame.astype(dict.fromkeys(key[:4], str)).set_index(key)["time_us"].sort_index()
    np.testing.assert_array_equal(found.to_numpy(float), expected.to_numpy(float))
    sources = pd.read_parquet(tmp_path / "k-sources.parquet")
    assert set(frame["program_hash"]) == set(sources["program_hash"])
    assert sources["source"].str.startswith("// format: ").all()


def test_a_folder_given_twice_counts_once(shards, tmp_path):
    counts = ingest([shards, shards], tmp_path / "k.parquet")
    assert (counts["rows"], counts["repeated"]) == (len(table(shards)), len(table(shards)))


def put(number, **values):
    def change(rows):
        rows[number].update(values)

    return change


def correct_row(shards):
    return next(number for number, row in enumerate(table(shards)) if row["status"] == "correct" and number > 40)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"time_us": -1.0}, "time_us > 0"),
        ({"time_us": None}, "time_us is there when the status is correct"),
        ({"status": "fine"}, "status is one of"),
        ({"width": 1.5}, "width is a whole number"),
        ({"program_hash": "0" * 64}, "every program's source is there"),
        ({"matrix": "no/where"}, "every matrix's features are there"),
        ({"gpu": None}, "a measured time names gpu and driver"),
        ({"baseline": None}, "a correct row has a baseline"),
        ({"speedup": 50.0}, "speedup is baseline_us / time_us"),
        ({"reliable": False}, "a measured row that is not reliable says why"),
        ({"reliable": "yes"}, "reliable is true, false or missing"),
        ({"parameters": 7}, "parameters is text"),
    ],
)
def test_what_is_invalid_does_not_get_through_and_is_named_by_shard_and_line(shards, tmp_path, values, says):
    number = correct_row(shards)
    folder = rewritten(shards, tmp_path / "bad", put(number, **values))
    with pytest.raises(UserError) as caught:
        ingest([folder], tmp_path / "k.parquet")
    message = str(caught.value)
    assert says in message
    assert f"measurements-00000.jsonl.gz line {number + 1}" in message
    assert not list(tmp_path.glob("*.parquet"))


def test_side_tables_are_looked_at_too(shards, tmp_path):
    folder = rewritten(shards, tmp_path / "bad", lambda rows: None)
    sources = table(shards, "sources")
    sources[2]["source"] += " "
    text = "".join(json.dumps(row) + "\n" for row in sources)
    (folder / "sources-00000.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=r"sha256 of source.* rows: sources-00000\.jsonl\.gz line 3"):
        ingest([folder], tmp_path / "k.parquet")
    other = rewritten(shards, tmp_path / "other", lambda rows: None)
    (other / "problems-00000.jsonl.gz").unlink()
    with pytest.raises(UserError, match=r"no problems-00000"):
        ingest([other], tmp_path / "k.parquet")


def test_a_missing_column_or_folder_is_named(shards, tmp_path):
    def drop(rows):
        for row in rows:
            del row["floor_us"]

    with pytest.raises(UserError, match="column floor_us is there"):
        ingest([rewritten(shards, tmp_path / "bad", drop)], tmp_path / "k.parquet")
    with pytest.raises(UserError, match=r"expected the folder of a campaign"):
        ingest([tmp_path], tmp_path / "k.parquet")


# -- the summary, on rows made by hand -----------------------------------------------------------------------------


def problems(*matrices, **changes):
    rows = [
        {
            "matrix": name, "rows": 1000, "cols": 1000, "nnz": nnz, "structure_class": kind, "operator": "spmv",
            "width": 1, "dtype": "float32", "arch": "sm_90", "gpu": "H200", "outcome": "done", "message": None,
            "judged": 2, "seconds": 1.0, "session": "s", **changes,
        }
        for name, nnz, kind in matrices
    ]  # fmt: skip
    return pd.DataFrame(rows)


def row(matrix, family, phase, speedup, **changes):
    known = {
        "matrix": matrix, "rows": 1000, "cols": 1000, "nnz": 5000, "structure_class": "banded", "operator": "spmv",
        "width": 1, "dtype": "float32", "arch": "sm_90", "gpu": "H200", "timing": "measured", "status": "correct",
        "family": family, "program_hash": family, "phase": phase, "round": 0, "time_us": 10.0 / speedup,
        "baseline_us": 10.0, "speedup": speedup, "speedup_cold": speedup / 2, "reliable": True, "convert_us": 2000.0,
        "break_even": 100.0, "bytes_stored": 44_000, "gpu_seconds": 0.25, "session": "s",
    }  # fmt: skip
    return {**known, **changes}


def features(*names):
    return pd.DataFrame(
        [{"matrix": name, "name": name, "group": name.split("/")[0], "size": k} for k, name in enumerate(names)]
    )


SESSIONS = pd.DataFrame(
    [
        {
            "session": "s", "started": "2026-12-04T10:00:00+00:00", "gpu": "H200", "driver": "580", "cuda": "13.0",
            "arch": "sm_90", "compiler": "nvrtc", "copy_bandwidth": 4e6,
        }
    ]
)  # fmt: skip
MATRICES = (("g1/a", 5_000, "banded"), ("g2/b", 50_000, "banded"), ("g3/c", 2_000_000, "block"), ("g4/d", 500, "tiny"))
ROWS = pd.DataFrame(
    [
        # The search's 9x is noise: what counts is the fresh 4x.
        row("g1/a", "sell", "search", 9.0),
        row("g1/a", "sell", "final", 4.0),
        row("g1/a", "dia", "search", 3.0),
        row("g1/a", "dia", "final", 2.0),
        # Slower than the baseline: handed back, by name.
        row("g2/b", "sell", "search", 0.5),
        row("g2/b", "sell", "final", 0.5),
        # The fastest cannot be quoted; the next one is.
        row("g3/c", "dia", "search", 8.0),
        row("g3/c", "dia", "final", 8.0, reliable=False),
        row("g3/c", "dia", "final", 8.5, reliable=False, round=1),
        row("g3/c", "sell", "search", 2.0),
        row("g3/c", "sell", "final", 2.0, convert_us=4000.0, break_even=300.0),
        # Nothing was correct.
        row("g4/d", "sell", "search", 1.0, status="wrong", time_us=None, timing=None),
    ]
)
NAMES = [name for name, _, _ in MATRICES]


def test_winners_by_their_final_measurement_and_the_baseline_where_nothing_beats_it():
    found = one_problem(SPMV, ROWS, features(*NAMES), problems(*MATRICES), SESSIONS, "measured")
    assert found["n"] == 4
    assert found["geomean"] == pytest.approx((4 * 1 * 2 * 1) ** 0.25)
    assert found["geomean_cold"] == pytest.approx((2 * 1 * 1 * 1) ** 0.25)
    low, high = found["geomean_interval"]
    assert 1.0 <= low < found["geomean"] < high <= 4.0
    assert found["by_nnz"] == {
        "lt1e4": pytest.approx(2.0),
        "1e4_1e5": pytest.approx(1.0),
        "1e5_1e6": None,
        "gt1e6": pytest.approx(2.0),
    }
    assert found["by_nnz_n"] == {"lt1e4": 2, "1e4_1e5": 1, "1e5_1e6": 0, "gt1e6": 1}
    assert found["by_class"] == pytest.approx({"banded": 2.0, "block": 2.0, "tiny": 1.0})
    assert found["worst"] == {"matrix": "g2/b", "speedup": 1.0}
    assert found["worst_program"] == {"matrix": "g2/b", "speedup": 0.5}
    assert found["baseline_kept"] == ["g2/b", "g4/d"]
    assert found["unquotable"] == []
    assert (found["programs"], found["finals"], found["gpu_seconds"]) == (6, 6, 3.0)
    assert (found["convert_ms_median"], found["break_even_median"]) == (3.0, 200.0)
    sell, dia = found["families"]["sell"], found["families"]["dia"]
    assert sell["geomean"] == pytest.approx((4 * 0.5 * 2 * 1) ** 0.25)
    assert dia["geomean"] == pytest.approx(2**0.25)
    assert (sell["matrices"], sell["wins"], dia["matrices"], dia["wins"]) == (3, 2, 1, 0)


def test_a_matrix_whose_every_winner_is_noise_counts_as_the_baseline_and_is_named():
    noise = ROWS[ROWS["matrix"] == "g3/c"]
    noise = noise[noise["family"] == "dia"]
    found = one_problem(SPMV, noise, features("g3/c"), problems(MATRICES[2]), SESSIONS, "measured")
    assert (found["geomean"], found["unquotable"], found["baseline_kept"]) == (1.0, ["g3/c"], ["g3/c"])


def test_what_was_not_finished_or_refused_is_no_result():
    table = problems(*MATRICES)
    table.loc[1, "outcome"] = "refused"
    found = one_problem(SPMV, ROWS, features(*NAMES), table[table["matrix"] != "g4/d"], SESSIONS, "measured")
    assert (found["n"], found["refused"]) == (2, 1)
    assert found["geomean"] == pytest.approx(8**0.5)


def test_bandwidth_counts_the_stored_format_and_each_dense_operand_once():
    large = problems(("g/x", 20_000_000, "diagonal"), rows=20_000_000, cols=20_000_000)
    big = {"rows": 20_000_000, "cols": 20_000_000, "bytes_stored": 80_000_000, "time_us": 100.0}
    rows = pd.DataFrame([row("g/x", "dia", "final", 2.0, **big)])
    found = one_problem(SPMV, rows, features("g/x"), large, SESSIONS, "measured")
    assert found["bandwidth_share"] == pytest.approx({"diagonal": 240e6 / 100 / 4e6})
    assert found["bandwidth_share_stored"] == pytest.approx({"diagonal": 80e6 / 100 / 4e6})
    small = one_problem(SPMV, ROWS, features(*NAMES), problems(*MATRICES), SESSIONS, "measured")
    assert small["bandwidth_share"] == {}


def test_the_keys_and_the_table():
    found = results(ROWS, features(*NAMES), problems(*MATRICES), SESSIONS, ["python", "-m", "x"])
    assert {"gpu", "driver", "cuda", "date", "command", "spmv"} <= found.keys()
    assert (found["gpu"], found["driver"], found["cuda"], found["date"]) == ("H200", "580", "13.0", "2026-12-04")
    assert {
        "n", "geomean", "geomean_cold", "by_nnz", "by_class", "worst", "bandwidth_share", "forest", "programs",
        "convert_ms_median", "break_even_median",
    } <= found["spmv"]["float32"].keys()  # fmt: skip
    json.dumps(found, allow_nan=False)
    wide = ROWS.assign(operator="spmm", width=8)
    both = results(
        pd.concat([ROWS, wide]),
        features(*NAMES),
        pd.concat([problems(*MATRICES), problems(*MATRICES, operator="spmm", width=8)]),
        SESSIONS,
        [],
    )
    assert both["spmm"]["float32"]["8"]["geomean"] == both["spmv"]["float32"]["geomean"]


def test_measured_and_modelled_times_or_two_gpus_never_meet():
    mixed = pd.concat([ROWS, ROWS.assign(timing="modelled", gpu=None)])
    with pytest.raises(UserError, match="mixes measured and modelled"):
        results(mixed, features(*NAMES), problems(*MATRICES), SESSIONS, [])
    two = pd.concat([problems(*MATRICES), problems(*MATRICES, gpu="A100", arch="sm_80")])
    with pytest.raises(UserError, match=r"mixes A100 \(sm_80\) and H200 \(sm_90\)"):
        results(ROWS, features(*NAMES), two, SESSIONS, [])


def test_the_forest_is_asked_only_about_groups_that_it_never_saw():
    # Odd matrices want sell, even ones dia, which their feature says; one group's feature lies.
    names = [f"g{k // 2}/m{k}" for k in range(40)]
    odd = np.arange(40) % 2 == 1
    table = pd.DataFrame(
        {
            "matrix": names,
            "group": [name.split("/")[0] for name in names],
            "structure_class": "banded",
            "odd": odd.astype(int),
        }
    )
    rows = [row(n, "sell", "final", 4.0 if o else 0.5) for n, o in zip(names, odd, strict=True)]
    rows += [row(n, "dia", "final", 0.5 if o else 4.0) for n, o in zip(names, odd, strict=True)]
    speedups = family_speedups(pd.DataFrame(rows), names)
    learned = forest(speedups, table)
    assert learned is not None
    assert learned.folds == 5
    assert (learned.top1 == 4.0).all()
    blind = forest(speedups, table.assign(odd=0, own=np.arange(40) // 2))  # the groups' numbers alone say nothing
    assert blind is not None
    assert math.isclose(np.exp(np.log(blind.top1).mean()), 2**0.5)  # one of each pair is missed
    assert (blind.top4 == 4.0).all()
    assert forest(speedups.iloc[:2], table) is None


def test_the_command_writes_json_and_table(shards, tmp_path):
    ingest([shards], tmp_path / "k.parquet")
    found = summarise(tmp_path / "k.parquet", tmp_path / "kernels.json", ["python", "-m", "components.campaign"])
    written = json.loads((tmp_path / "kernels.json").read_text())
    assert written == {name: value for name, value in found.items() if name != "markdown"}
    assert written["spmv"]["float32"]["n"] == written["spmm"]["float32"]["8"]["n"] == 3
    text = (tmp_path / "kernels.md").read_text()
    assert text == found["markdown"]
    assert "| best of cuSPARSE (1 by definition) | 1.000 | 1.000 |" in text
    assert "`csr_vector` alone" in text
    with pytest.raises(UserError, match="not found"):
        summarise(tmp_path / "none.parquet", tmp_path / "x.json", [])
