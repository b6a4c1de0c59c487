"""The benchmarks are right: same input, same answer, one kind of document; how fast is not for tests."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from benchmarks import chart, examples, peers, results, scale, vwap
from benchmarks.answer import answer, is_equal
from benchmarks.bars import bars
from benchmarks.data import Trades
from benchmarks.latency import percentile
from benchmarks.peers.__main__ import main as peers_main
from benchmarks.peers.protocol import Outcome
from benchmarks.results import Result, ratios
from penstock.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = {"bench", "machine", "settings", "results", "ratios"}
MACHINE = {"cpu", "cores", "memory_gb", "python", "java", "spark", "date"}
RESULT = {"system", "case", "rows_per_s", "seconds", "peak_mb", "equal"}


def result(system: str, rows_per_s: float, case: str = "vwap", *, equal: bool = True) -> Result:
    return Result(system, case, rows_per_s, 1.0, 100.0, equal)


@pytest.fixture(scope="module")
def trades(tmp_path_factory: pytest.TempPathFactory) -> Trades:
    made = Trades(5_000, 50, "parquet", 2, tmp_path_factory.mktemp("bench"))
    made.prepare()
    return made


def written(trades: Trades, query: str, folder: Path) -> Outcome:
    """Write a query over the right answer as if it were a system's output."""
    right = answer("windowed", trades.input, "parquet")
    with duckdb.connect() as db:
        db.execute(f"COPY ({query.format(right=f'({right})')}) TO '{folder}/part.parquet' (FORMAT parquet)")
    return Outcome(str(folder))


@pytest.mark.slow
@pytest.mark.parametrize("peers", [["duckdb"], ["spark", "duckdb"]], ids="-".join)
def test_vwap_gives_equal_results_in_every_system_and_one_document(peers: list[str], tmp_path: Path) -> None:
    target = tmp_path / "found" / "vwap.json"
    code = vwap.run(20_000, 500, "parquet", 2, peers, target, runs=1, warmups=0, cache=tmp_path / "cache")
    made = json.loads(target.read_text())
    assert code == 0
    assert set(made) == DOCUMENT
    assert set(made["machine"]) == MACHINE
    assert [row["system"] for row in made["results"]] == ["penstock", *peers]
    assert all(set(row) >= RESULT and row["equal"] for row in made["results"])
    assert set(made["ratios"]) == {f"penstock/{peer}" for peer in peers}
    assert made["settings"]["skipped"] == {}
    assert target.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_the_query_of_hand_written_spark_gives_the_right_answer(
    trades: Trades, spark: SparkSession, tmp_path: Path
) -> None:
    from benchmarks.peers.spark import SCHEMA, windowed

    frame = windowed(spark.read.schema(SCHEMA).parquet(str(trades.input)))
    frame.write.parquet(str(tmp_path / "out"))
    assert is_equal("windowed", answer("windowed", trades.input, "parquet"), Outcome(str(tmp_path / "out")))


@pytest.mark.slow
def test_examples_are_run_in_both_lanes_with_equal_results(tmp_path: Path, settings: Settings) -> None:
    target = tmp_path / "examples.json"
    shortest = examples.EXAMPLES[:1]
    assert examples.run(target, scale=0.002, runs=1, warmups=0, examples=shortest, settings=settings) == 0
    made = json.loads(target.read_text())
    assert [(row["system"], row["case"], row["equal"]) for row in made["results"]] == [
        ("penstock", "vwap", True),
        ("spark", "vwap", True),
    ]


@pytest.mark.slow
def test_topic_gives_every_system_the_rows_of_the_files(tmp_path: Path) -> None:
    target, cache = tmp_path / "vwap.json", tmp_path / "cache"
    peers = ["spark", "flink", "duckdb"]
    code = vwap.run(5_000, 50, "json", 2, peers, target, source="topic", runs=1, warmups=0, cache=cache)
    made = json.loads(target.read_text())
    skipped = set(made["settings"]["skipped"])
    assert code == 0
    assert skipped >= {"flink", "duckdb"}
    assert [row["system"] for row in made["results"]] == ["penstock", *({"spark"} - skipped)]
    assert all(row["equal"] and row["case"] == "vwap-topic-json" for row in made["results"])
    assert not list(cache.rglob("broker-*")), "the log is gone"


@pytest.mark.slow
def test_scale_measures_a_size_warm_and_draws_it(tmp_path: Path) -> None:
    target = tmp_path / "scale.json"
    code = scale.run(target, [6_000], [], cache=tmp_path / "cache", keys_of_rows=20, epoch_rows=2_000)
    [row] = json.loads(target.read_text())["results"]
    assert code == 0
    assert row["case"] == "rows-6000"
    assert row["equal"]
    assert row["epochs"] >= 3
    assert 0 < row["us_per_row"] * row["rows"] / 1e6 <= row["seconds"] - row["start_s"] + 0.01
    assert target.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_cost_that_grows_faster_than_rows_is_not_linear() -> None:
    sizes = [scale.Size("rows", rows, 10) for rows in (1_000, 10_000)]
    grown = [
        scale._row(size, seconds, [1e3 * seconds], 100, True) for size, seconds in zip(sizes, (1.0, 13.0), strict=True)
    ]
    even = [
        scale._row(size, seconds, [1e3 * (seconds - 1)], 100, True)
        for size, seconds in zip(sizes, (2.0, 13.0), strict=True)
    ]
    assert [bar.reached for bar in scale.bars(results.document("scale", {}, grown))] == [False, True]
    assert scale.bars(results.document("scale", {}, even))[0].reached, "what a query takes to start is not in it"


def test_system_that_fails_is_not_equal_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vwap, "measure", lambda config: vwap.Measured(None, 1.0, "no such thing"))
    code = vwap.run(100, 5, "csv", 1, [], cache=tmp_path)
    assert code == 1
    assert "failed: no such thing" in capsys.readouterr().out


def test_peer_that_is_not_installed_is_skipped_with_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vwap, "installed", lambda name: False)
    assert "make bench-peers" in str(vwap._reason("flink", "csv"))


def test_peer_that_cannot_read_the_format_is_skipped_with_what_to_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vwap, "installed", lambda name: True)
    assert "--format csv" in str(vwap._reason("flink", "parquet"))
    assert vwap._reason("flink", "json") is None
    assert vwap._reason("spark", "parquet") is None


def test_right_answer_is_equal_and_the_closing_window_does_not_count(trades: Trades, tmp_path: Path) -> None:
    closing = "SELECT 'S', TIMESTAMPTZ '2100-01-01 00:00:00Z', 1.0, 1, 1"
    outcome = written(trades, f"FROM {{right}} UNION ALL {closing}", tmp_path)
    assert is_equal("windowed", answer("windowed", trades.input, "parquet"), outcome)


@pytest.mark.parametrize(
    "query",
    [
        "FROM {right} LIMIT 49",
        "FROM {right} UNION ALL (FROM {right} LIMIT 1)",
        "SELECT * REPLACE (vwap * 1.000001 AS vwap) FROM {right}",
        "SELECT * REPLACE (CASE WHEN symbol = 'S00007' THEN NULL ELSE vwap END AS vwap) FROM {right}",
        "SELECT * REPLACE (trades + 1 AS trades) FROM {right}",
        "SELECT * REPLACE (window_start + INTERVAL '1 minute' AS window_start) FROM {right}",
    ],
    ids=["missing", "twice", "price", "null", "count", "window"],
)
def test_wrong_row_is_noticed(trades: Trades, tmp_path: Path, query: str) -> None:
    outcome = written(trades, query, tmp_path)
    assert not is_equal("windowed", answer("windowed", trades.input, "parquet"), outcome)


def test_no_output_is_not_equal(trades: Trades, tmp_path: Path) -> None:
    assert not is_equal("windowed", answer("windowed", trades.input, "parquet"), Outcome(str(tmp_path)))


@pytest.mark.parametrize("format", ["csv", "json"])
def test_text_input_has_the_rows_of_parquet(trades: Trades, format: str) -> None:
    text = Trades(5_000, 50, format, 2, trades.cache)
    text.prepare()
    with duckdb.connect() as db:
        one = db.execute(f"{answer('python', trades.input, 'parquet')} ORDER BY ALL").fetchall()
        other = db.execute(f"{answer('python', text.input, format)} ORDER BY ALL").fetchall()
    assert one == other


def test_input_is_one_file_per_epoch_in_order_and_the_closing_one_is_last(trades: Trades) -> None:
    files = [*sorted(trades.input.iterdir()), *trades.closing.iterdir()]
    times = [file.stat().st_mtime for file in files]
    assert len(files) == 3
    assert times == sorted(set(times))


def test_no_trade_is_later_than_the_delay(trades: Trades) -> None:
    with duckdb.connect() as db:
        rows = db.execute(f"SELECT ts FROM read_parquet('{trades.input}/*.parquet')").fetchall()
    newest = datetime.min.replace(tzinfo=rows[0][0].tzinfo) + timedelta(days=1)
    for (ts,) in rows:
        newest = max(newest, ts)
        assert newest - ts <= timedelta(seconds=5)


def test_ratios_name_both_systems_and_the_case_where_there_are_several() -> None:
    assert ratios([result("penstock", 300), result("spark", 200)]) == {"penstock/spark": 1.5}
    two = [result(system, speed, case) for case in "ab" for system, speed in [("penstock", 4), ("spark", 2)]]
    assert ratios(two) == {"penstock/spark:a": 2.0, "penstock/spark:b": 2.0}


def test_ratios_leave_out_systems_that_failed() -> None:
    assert ratios([result("penstock", 300), result("spark", 0, equal=False)]) == {}
    assert ratios([result("penstock", 0, equal=False), result("spark", 200)]) == {}


def run_of(speeds: dict[str, float], **settings: object) -> dict[str, Any]:
    """The document of a VWAP run with so many rows a second of each system."""
    common = {"source": "files", "format": "csv", "epochs": 12, "events": 6_000_000}
    return results.document("vwap", common | settings, [result(name, speed) for name, speed in speeds.items()])


def test_bars_are_per_peer_and_batch_systems_have_none() -> None:
    speeds = {"penstock": 96, "spark": 100, "spark-defaults": 90, "bytewax": 80, "duckdb": 1000}
    found = bars(run_of(speeds, events=1_000))
    assert [bar.reached for bar in found] == [True, False, True, True]
    assert "duckdb" not in " ".join(bar.text for bar in found)


@pytest.mark.parametrize(
    ("peer", "settings", "least"),
    [
        ("spark", {"epochs": 1}, 3.0),
        ("spark", {"format": "json", "epochs": 12}, 2.0),
        ("spark", {"format": "parquet"}, 1.3),
        ("spark", {"source": "topic", "format": "json"}, 2.5),
        ("flink", {"format": "csv"}, 4.0),
        ("spark", {"epochs": 1, "events": 5_000}, 0.95),
    ],
)
def test_bar_is_that_of_the_size_format_and_epochs_of_the_run(
    peer: str, settings: dict[str, object], least: float
) -> None:
    reached, missed = (
        bars(run_of({"penstock": 100 * ratio, peer: 100}, **settings))[0] for ratio in (least, least - 0.02)
    )
    assert reached.reached
    assert not missed.reached


def test_memory_is_compared_with_that_of_plain_spark() -> None:
    made = run_of({"penstock": 900, "spark": 100})
    made["results"][0]["peak_mb"] = 101.0
    assert [bar.reached for bar in bars(made) if "memory" in bar.text] == [False]


def test_events_per_second_are_not_judged_where_plain_spark_is_slow_too() -> None:
    rates = [{"penstock": 2.2e6, "spark": 1e6}, {"penstock": 2.1e6, "spark": 2.1e6}, {"penstock": 1e6, "spark": 9e5}]
    found = [bars(run_of(speeds, format="parquet"))[-1].reached for speeds in rates]
    assert found == [True, False, None]


def test_document_is_json_with_the_figures_of_each_bench(tmp_path: Path) -> None:
    row = Result("penstock", "windowed", 10.0, 1.0, 5.0, True, {"p50_ms": 7.0, "p99_ms": 9.0})
    results.save(results.document("latency", {"epochs": 1}, [row]), tmp_path / "a" / "b.json")
    made = json.loads((tmp_path / "a" / "b.json").read_text())
    assert set(made) == DOCUMENT
    assert set(made["results"][0]) == RESULT | {"p50_ms", "p99_ms"}
    chart.draw(made, tmp_path / "b.png", "p50_ms", "ms")
    assert (tmp_path / "b.png").is_file()


def test_percentile_is_a_measured_value() -> None:
    values = [float(n) for n in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([3.0], 0.99) == 3


def test_hand_written_spark_has_the_settings_of_penstock() -> None:
    from benchmarks.peers.spark import tuned
    from penstock.spark.session.object_stores import store_settings
    from penstock.spark.session.spark_session import _DEFAULTS, _heap, query_settings
    from penstock.storage.folders import folder

    ours = {**_DEFAULTS, **query_settings(Settings(parallelism=3), branches=False), "spark.driver.memory": _heap()}
    ours |= store_settings(folder("checkpoint"), Settings())
    only_for_the_bench = {"spark.sql.streaming.numRecentProgressUpdates"}
    # It hides secrets in logs.
    del ours["spark.redaction.regex"]
    assert {key: value for key, value in tuned(3).items() if key not in only_for_the_bench} == ours


def test_peers_are_pinned_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert peers_main(["list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{name} " in listed and peers.version(name) in listed for name in peers.INSTALLABLE)
    assert peers_main(["install", "storm"]) == 2
