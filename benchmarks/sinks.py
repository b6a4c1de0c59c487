"""What exactly-once costs at each sink, and what a crash costs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from benchmarks import chart, results
from benchmarks.data import CACHE, Trades
from benchmarks.peers.penstock_log import PenstockServer
from benchmarks.process import answered
from benchmarks.replay import SPARK, replay, restarts
from benchmarks.results import OURS, Bar, Result
from benchmarks.sinks_jobs import GUARANTEES, Job
from penstock.settings import cores

SINKS = ("topic", "files", "postgresql")
LEAST = {"topic": 0.8, "files": 0.9, "postgresql": 0.9}
MOST_RESTART = 1.2
EPOCHS = 12
SYMBOLS = 10_000
NOTE = """
topic, files, postgresql: {rows:,} rows of 4 columns from Parquet to the sink in {epochs} epochs, with each guarantee
in turn in one process, best of {runs} after one that does not count, from the start of the query to its end. restart:
from kill -9 of a windowed job (Python, JVM, workers; an epoch has 10,000 rows) to its next output, started again at
once, median of {runs}; spark-defaults: the same query by hand. replay: {events:,} VWAP events at {symbols:,} symbols in
one epoch, killed before it wrote, from the start of the process to the last result; replay-warm: without the start of
Python and JVM. equal: the sink holds every row once, and the replay what DuckDB has in batch.
"""


def run(
    json: Path | str | None = None,
    events: int = 6_000_000,
    *,
    sinks: Sequence[str] = SINKS,
    crashes: bool = True,
    runs: int = 3,
    cache: Path = CACHE,
) -> int:
    """Measure each sink, the restart and the replay; return 1 if a row is lost or twice."""
    cache.mkdir(parents=True, exist_ok=True)
    rows = max(EPOCHS, events // 6)
    found = [
        result for sink in sinks for result in _guarantees(Trades(rows, SYMBOLS, "parquet", EPOCHS, cache), sink, runs)
    ]
    if crashes:
        found += [*restarts(cache, runs), *replay(cache, events, SYMBOLS)]
    settings = {"events": events, "rows": rows, "symbols": SYMBOLS, "epochs": EPOCHS, "runs": runs}
    made = results.document("sinks", settings, found) | {"ratios": ratios(found)}
    target = Path(json) if json else cache / "sinks.json"
    results.save(made, target)
    chart.draw(made | {"results": [row for row in made["results"] if row["case"] in SINKS]}, target.with_suffix(".png"))
    results.show(made, NOTE.format(**settings), bars(found))
    print(f"written: {target} and {target.with_suffix('.png')}")
    return 0 if all(result.equal for result in found) else 1


def ratios(found: Sequence[Result]) -> dict[str, float]:
    """Return the speed of exactly-once over that of at-least-once by sink, and Penstock's restart over Spark's.

    >>> ratios([Result("exactly_once", "files", 90, 1, 1, True), Result("at_least_once", "files", 100, 1, 1, True)])
    {'exactly_once/at_least_once:files': 0.9}
    """
    by = {(row.system, row.case): row for row in found}
    once, least = GUARANTEES
    made = {
        f"{once}/{least}:{sink}": round(by[once, sink].rows_per_s / by[least, sink].rows_per_s, 3)
        for sink in SINKS
        if (once, sink) in by and by.get((least, sink), by[once, sink]).rows_per_s
    }
    if (OURS, "restart") in by and (SPARK, "restart") in by:
        made[f"{OURS}/{SPARK}:restart"] = round(by[OURS, "restart"].seconds / by[SPARK, "restart"].seconds, 3)
    return made


def bars(found: Sequence[Result]) -> Iterator[Bar]:
    """Say which bars were reached."""
    for pair, ratio in ratios(found).items():
        case = pair.split(":")[1]
        if case == "restart":
            yield Bar(f"{pair} {ratio:.2f} in seconds, bar at most {MOST_RESTART:.2f}", ratio <= MOST_RESTART)
        else:
            yield Bar(f"{pair} {ratio:.2f}, bar {LEAST[case]:.2f}", ratio >= LEAST[case])


def _guarantees(trades: Trades, sink: str, runs: int) -> list[Result]:
    trades.prepare()
    print(f"{sink} ...", end=" ", flush=True)
    work = trades.folder / "work" / f"sink-{sink}"
    shutil.rmtree(work, ignore_errors=True)
    try:
        with _server(sink, trades.folder) as address:
            job = Job(
                "sink", str(trades.input), str(work), trades.epoch_rows, cores(), sink=sink, address=address, runs=runs
            )
            answer, peak_mb = answered("benchmarks.sinks_jobs", job, job.sink)
            counts = {one: _count(sink, answer["names"][one], address, work) for one in GUARANTEES}
    finally:
        shutil.rmtree(work, ignore_errors=True)
    best = {one: min(answer["seconds"][one]) for one in GUARANTEES}
    print(", ".join(f"{one} {best[one]:.2f} s" for one in GUARANTEES))
    return [
        Result(one, sink, round(trades.events / best[one]), round(best[one], 3), peak_mb, counts[one] == trades.events)
        for one in GUARANTEES
    ]


@contextmanager
def _server(sink: str, folder: Path) -> Iterator[str]:
    """Run what a sink writes to, and give its address."""
    if sink == "topic":
        with PenstockServer(parent=folder) as server:
            yield server.bootstrap
    elif sink == "postgresql":
        from tests.databases import running_postgres

        with running_postgres() as database:
            yield database.url
    else:
        yield ""


def _count(sink: str, name: str, address: str, work: Path) -> int:
    """Count the rows that readers of the sink see."""
    match sink:
        case "topic":
            return _records(address, name)
        case "postgresql":
            import psycopg

            with psycopg.connect(address) as connection:
                found = connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()
        case _:
            with duckdb.connect() as db:
                found = db.execute(f"SELECT count(*) FROM read_parquet('{work}/{name}/*.parquet')").fetchone()
    return int(found[0]) if found else 0


def _records(bootstrap: str, topic: str) -> int:
    config = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
    config |= {"isolation.level": "read_committed", "enable.partition.eof": True, "metadata.recovery.strategy": "none"}
    consumer = Consumer(config)
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    count, ends = 0, 0
    while ends < len(partitions):
        for record in consumer.consume(10_000, timeout=5):
            error = record.error()
            count += error is None
            ends += error is not None and error.code() == KafkaError._PARTITION_EOF
    consumer.close()
    return count
