"""`penstock bench`: measure Penstock against others on this machine."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Literal

import typer

from penstock.errors import MissingPart, UnknownSetting, choices

PEERS = ("spark", "spark-defaults", "flink", "bytewax", "pathway", "duckdb")
Format = Literal["parquet", "csv", "json"]
From = Literal["files", "topic"]
Json = Annotated[
    Path | None, typer.Option("--json", dir_okay=False, metavar="FILE", help="Write the results here too.")
]

app = typer.Typer(
    help="Measure Penstock against others on this machine.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command()
def vwap(
    events: Annotated[int, typer.Option(min=1, help="How many trades.")] = 6_000_000,
    symbols: Annotated[int, typer.Option(min=1, help="How many symbols they are of.")] = 10_000,
    source: Annotated[
        From, typer.Option(help="What is read: files, or a topic of Penstock's log, started for the bench.")
    ] = "files",
    format: Annotated[
        Format | None,
        typer.Option(help="Format of the input.", show_default="parquet for files, json for a topic"),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="In how many epochs the input is read.")] = 12,
    peers: Annotated[
        str, typer.Option(metavar="A,B,...", help=f"Whom to run beside Penstock: {', '.join(PEERS)}.")
    ] = "spark,spark-defaults,duckdb",
    json: Json = None,
) -> None:
    """Run VWAP over 60 s windows on the same input in every system, and compare speed and results."""
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
        str, typer.Option(metavar="N,N,...", help="Sizes of the input in rows, of 10,000 symbols.")
    ] = "1000000,10000000,50000000",
    keys: Annotated[
        str, typer.Option(metavar="N,N,...", help="Numbers of symbols, in 6,000,000 rows.")
    ] = "1000,100000,1000000",
    format: Annotated[Format, typer.Option(help="Format of the input.")] = "parquet",
    json: Json = None,
) -> None:
    """Measure time and memory of the VWAP as its input grows in rows and in keys; Penstock only."""
    sizes = {"rows": _numbers("--rows", rows), "keys": _numbers("--keys", keys)}
    raise typer.Exit(_benchmark("scale").run(json=json, format=format, **sizes) or 0)


@app.command()
def latency(
    seconds: Annotated[int, typer.Option(min=1, help="How long each case is measured.")] = 30,
    rate: Annotated[int, typer.Option(min=1, help="Records per second.")] = 1_000,
    files: Annotated[
        bool, typer.Option("--files", help="Time epochs of 1,000 rows from files to files instead.")
    ] = False,
    json: Json = None,
) -> None:
    """Time records from topic to topic at each pace, beside Spark's Kafka connector with its default trigger."""
    if files:
        raise typer.Exit(_benchmark("latency_files").run(json=json) or 0)
    raise typer.Exit(_benchmark("latency").run(json=json, seconds=seconds, rate=rate) or 0)


@app.command()
def log(
    records: Annotated[
        int, typer.Option(min=1, help="How many records of 1 KB are produced and consumed.")
    ] = 1_000_000,
    seconds: Annotated[int, typer.Option(min=1, help="How long latency is measured.")] = 20,
    spark: Annotated[bool, typer.Option(help="Let Spark read 1,000,000 JSON records from each broker too.")] = True,
    json: Json = None,
) -> None:
    """Produce, consume, latency, memory and start of Penstock's log, beside Apache Kafka."""
    raise typer.Exit(_benchmark("log").run(json=json, records=records, seconds=seconds, spark=spark) or 0)


@app.command()
def examples(
    scale: Annotated[float, typer.Option(min=0.001, help="How much of the usual input.")] = 1.0,
    json: Json = None,
) -> None:
    """Run the pipelines of examples/ with the native lane and without it, by turns."""
    raise typer.Exit(_benchmark("examples").run(json=json, scale=scale) or 0)


@app.command()
def sinks(
    events: Annotated[
        int, typer.Option(min=1, help="How many events are replayed; each sink gets a sixth.")
    ] = 6_000_000,
    json: Json = None,
) -> None:
    """Measure what exactly-once costs at each sink, a restart after kill -9 beside Spark's own, and a replay."""
    raise typer.Exit(_benchmark("sinks").run(json=json, events=events) or 0)


@app.command()
def state(
    events: Annotated[int, typer.Option(min=4, help="How many events of 10,000 keys.")] = 1_000_000,
    keys: Annotated[
        int,
        typer.Option(min=100, help="How many keys have state where few are touched; Spark takes minutes to fill it."),
    ] = 1_000_000,
    json: Json = None,
) -> None:
    """Run a process function beside Spark's transformWithStateInPandas: many events, then many keys and few touched."""
    raise typer.Exit(_benchmark("state").run(json=json, events=events, many=keys) or 0)


@app.command()
def joins(
    rows: Annotated[int, typer.Option(min=12, help="How many orders are joined with their shipments.")] = 600_000,
    json: Json = None,
) -> None:
    """Measure an interval join of two streams, beside the same by hand in PySpark with the same settings."""
    raise typer.Exit(_benchmark("joins").run(json=json, rows=rows) or 0)


@app.command()
def dedup(
    rows: Annotated[int, typer.Option(min=12, help="How many events.")] = 3_000_000,
    json: Json = None,
) -> None:
    """Measure deduplication within 10 s of event time, beside Spark's dropDuplicatesWithinWatermark."""
    raise typer.Exit(_benchmark("dedup").run(json=json, rows=rows) or 0)


@app.command()
def late(
    events: Annotated[int, typer.Option(min=1, help="How many trades.")] = 3_000_000,
    json: Json = None,
) -> None:
    """Measure what it costs to part late rows from the others instead of dropping them, in both lanes."""
    raise typer.Exit(_benchmark("late").run(json=json, events=events) or 0)


def _format_of(source: From, given: Format | None) -> Format:
    if source == "topic" and given == "parquet":
        message = "--source topic: a record holds one row, which cannot be parquet"
        raise UnknownSetting(message, hint="pass --format json or --format csv")
    return given or ("json" if source == "topic" else "parquet")


def _numbers(option: str, text: str) -> list[int]:
    parts = [part.strip().replace("_", "") for part in text.split(",") if part.strip()]
    for part in parts:
        if not part.isdecimal() or not int(part):
            message = f"{option}: '{part}' is not a whole number from 1"
            raise UnknownSetting(message, hint=f"as in: {option} 1000000,10000000")
    return [int(part) for part in parts]


def _read_peers(text: str) -> list[str]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in PEERS:
            message = f"--peers: unknown system '{name}'"
            raise UnknownSetting(message, hint=choices("systems", PEERS, name))
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
