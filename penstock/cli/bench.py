"""`penstock bench`: benchmark Penstock against other systems on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import typer

from penstock.cli import command_group
from penstock.errors import MissingPart, UnknownSetting, choices

PEERS = ("spark", "spark-defaults", "flink", "bytewax", "pathway", "duckdb")
Format = Literal["parquet", "csv", "json"]
From = Literal["files", "topic"]
Json = Annotated[
    Path | None, typer.Option("--json", dir_okay=False, metavar="FILE", help="Also write the results to this file.")
]

app = command_group("Benchmark Penstock against other systems on this machine.")


@app.command()
def vwap(
    events: Annotated[int, typer.Option(min=1, help="Number of trades.")] = 6_000_000,
    symbols: Annotated[int, typer.Option(min=1, help="Number of different symbols.")] = 10_000,
    source: Annotated[
        From, typer.Option(help="Source: files, or a topic of Penstock's log, which the benchmark starts.")
    ] = "files",
    format: Annotated[
        Format | None,
        typer.Option(help="Format of the input.", show_default="parquet for files, json for a topic"),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 12,
    peers: Annotated[
        str, typer.Option(metavar="A,B,...", help=f"Systems to compare with: {', '.join(PEERS)}.")
    ] = "spark,spark-defaults,duckdb",
    json: Json = None,
) -> None:
    """Run VWAP over 60 s windows on the same input in every system, and compare speed and results.

    Example: penstock bench vwap --events 1000000 --peers spark,duckdb
    """
    chosen = _format_of(source, format)
    wanted = _read_peers(peers)
    bench = _benchmark("vwap")
    code = bench.run(
        events=events, symbols=symbols, format=chosen, epochs=epochs, peers=wanted, json=json, source=source
    )
    raise typer.Exit(code or 0)


@app.command()
def scale(
    rows: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of rows, with 10,000 symbols.")
    ] = "1000000,10000000,50000000",
    keys: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of symbols, with 6,000,000 rows.")
    ] = "1000,100000,1000000",
    format: Annotated[Format, typer.Option(help="Format of the input.")] = "parquet",
    json: Json = None,
) -> None:
    """Measure time and memory of VWAP by number of rows and keys; Penstock only.

    Example: penstock bench scale --rows 1000000,10000000
    """
    sizes = {"rows": _numbers("--rows", rows), "keys": _numbers("--keys", keys)}
    raise typer.Exit(_benchmark("scale").run(json=json, format=format, **sizes) or 0)


@app.command()
def latency(
    seconds: Annotated[int, typer.Option(min=1, help="Duration of each case.")] = 30,
    rate: Annotated[int, typer.Option(min=1, help="Records per second.")] = 1_000,
    files: Annotated[
        bool, typer.Option("--files", help="Measure epochs of 1,000 rows from files to files instead.")
    ] = False,
    json: Json = None,
) -> None:
    """Measure the latency from topic to topic at each pace, compared with Spark's Kafka connector.

    Example: penstock bench latency --seconds 10 --rate 1000
    """
    if files:
        raise typer.Exit(_benchmark("latency_files").run(json=json) or 0)
    raise typer.Exit(_benchmark("latency").run(json=json, seconds=seconds, rate=rate) or 0)


@app.command()
def log(
    records: Annotated[int, typer.Option(min=1, help="Number of 1 KB records to produce and consume.")] = 1_000_000,
    seconds: Annotated[int, typer.Option(min=1, help="Duration of the latency measurement.")] = 20,
    spark: Annotated[bool, typer.Option(help="Also let Spark read 1,000,000 JSON records from each broker.")] = True,
    json: Json = None,
) -> None:
    """Measure throughput, latency, memory and start-up of Penstock's log, compared with Apache Kafka.

    Example: penstock bench log --records 100000 --no-spark
    """
    raise typer.Exit(_benchmark("log").run(json=json, records=records, seconds=seconds, spark=spark) or 0)


@app.command()
def examples(
    scale: Annotated[float, typer.Option(min=0.001, help="Factor of the input size.")] = 1.0,
    json: Json = None,
) -> None:
    """Run the pipelines of examples/ alternately with and without the native lane.

    Example: penstock bench examples --scale 0.1
    """
    raise typer.Exit(_benchmark("examples").run(json=json, scale=scale) or 0)


@app.command()
def sinks(
    events: Annotated[int, typer.Option(min=1, help="Number of events to replay; each sink gets a sixth.")] = 6_000_000,
    json: Json = None,
) -> None:
    """Measure the cost of exactly-once for each sink, a restart after kill -9, and a replay.

    Example: penstock bench sinks --events 600000
    """
    raise typer.Exit(_benchmark("sinks").run(json=json, events=events) or 0)


@app.command()
def state(
    events: Annotated[int, typer.Option(min=4, help="Number of events, with 10,000 keys.")] = 1_000_000,
    keys: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of keys with state, of which each epoch touches 10,000.")
    ] = "10000,100000,1000000,10000000",
    spark_keys: Annotated[
        int, typer.Option(help="The number of keys for which Spark is measured too; each takes milliseconds to fill.")
    ] = 100_000,
    json: Json = None,
) -> None:
    """Measure process functions, compared with Spark's transformWithStateInPandas.

    Example: penstock bench state --events 100000 --keys 10000,100000
    """
    sizes = _numbers("--keys", keys)
    raise typer.Exit(_benchmark("state").run(json=json, events=events, sizes=sizes, spark_keys=spark_keys) or 0)


@app.command()
def soak(
    epochs: Annotated[int, typer.Option(min=10, help="Number of epochs.")] = 2_000,
    keys: Annotated[int, typer.Option(min=1, help="Number of keys with state.")] = 100_000,
    touched: Annotated[int, typer.Option(min=1, help="Number of keys that an epoch touches.")] = 1_000,
    json: Json = None,
) -> None:
    """Run a process function for many epochs; time, files and bytes of its state should stay flat.

    Example: penstock bench soak --epochs 200
    """
    raise typer.Exit(_benchmark("soak").run(json=json, epochs=epochs, keys=keys, touched=touched) or 0)


@app.command()
def joins(
    rows: Annotated[int, typer.Option(min=12, help="Number of orders to join with their shipments.")] = 600_000,
    json: Json = None,
) -> None:
    """Measure an interval join of two streams, compared with the same join in PySpark.

    Example: penstock bench joins --rows 60000
    """
    raise typer.Exit(_benchmark("joins").run(json=json, rows=rows) or 0)


@app.command()
def dedup(
    rows: Annotated[int, typer.Option(min=12, help="Number of events.")] = 3_000_000,
    json: Json = None,
) -> None:
    """Measure deduplication within 10 s of event time, compared with dropDuplicatesWithinWatermark.

    Example: penstock bench dedup --rows 300000
    """
    raise typer.Exit(_benchmark("dedup").run(json=json, rows=rows) or 0)


@app.command()
def late(
    events: Annotated[int, typer.Option(min=1, help="Number of trades.")] = 3_000_000,
    json: Json = None,
) -> None:
    """Measure the cost of a side output for late rows, compared with dropping them, in both lanes.

    Example: penstock bench late --events 300000
    """
    raise typer.Exit(_benchmark("late").run(json=json, events=events) or 0)


@app.command()
def control(
    jobs: Annotated[int, typer.Option(min=10, help="Number of jobs in the store.")] = 1_000,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs in the store, at most 1,000 a job.")] = 100_000,
    rate: Annotated[int, typer.Option(min=1, help="Requests per second.")] = 100,
    seconds: Annotated[int, typer.Option(min=1, help="Duration of the requests.")] = 30,
    clients: Annotated[int, typer.Option(min=1, help="Number of WebSocket clients.")] = 1_000,
    spark: Annotated[bool, typer.Option(help="Also run jobs: submissions beside spark-submit, and a pool.")] = True,
    json: Json = None,
) -> None:
    """Measure the job manager: requests, events, submissions compared with spark-submit, jobs of a pool.

    Example: penstock bench control --seconds 10 --no-spark
    """
    sizes = {"jobs": jobs, "epochs": epochs, "rate": rate, "seconds": seconds, "clients": clients}
    raise typer.Exit(_benchmark("control").run(json=json, spark=spark, **sizes) or 0)


@app.command()
def views(
    parts: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Parts to measure: process, spark.", show_default="all"),
    ] = None,
    json: Json = None,
) -> None:
    """Measure views, in process and on Spark, compared with computing everything again after each change.

    Example: penstock bench views --parts process
    """
    bench = _benchmark("views")
    raise typer.Exit(bench.run(json=json, parts=_listed("--parts", parts or "", bench.PARTS)) or 0)


def _format_of(source: From, given: Format | None) -> Format:
    if source == "topic" and given == "parquet":
        message = "--source topic: a record contains one row, which cannot be parquet"
        raise UnknownSetting(message, hint="pass --format json or --format csv")
    return given or ("json" if source == "topic" else "parquet")


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip().replace("_", "") for part in text.split(",") if part.strip()]
    for part in parts:
        if not part.isdecimal() or not int(part):
            message = f"{option}: '{part}' is not a positive integer"
            raise UnknownSetting(message, hint=f"as in: {option} 1000000,10000000")
    return [int(part) for part in parts]


def _read_peers(text: str) -> list[str]:
    return _listed("--peers", text, PEERS, "system")


def _listed(option: str, text: str, known: Iterable[str], what: str = "part") -> list[str]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            message = f"{option}: unknown {what} '{name}'"
            raise UnknownSetting(message, hint=choices(f"{what}s", known, name))
    return wanted


def _benchmark(name: str) -> ModuleType:
    root = Path(__file__).resolve().parents[2]
    if not (root / "benchmarks" / f"{name}.py").is_file():
        message = "the benchmarks are not part of the installed package"
        hint = "run them from a source checkout: git clone, then make bench"
        raise MissingPart(message, hint=hint)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return import_module(f"benchmarks.{name}")
