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
    format: Annotated[Format, typer.Option(help="Format of the input.")] = "parquet",
    epochs: Annotated[int, typer.Option(min=1, help="In how many epochs the input is read.")] = 12,
    peers: Annotated[
        str, typer.Option(metavar="A,B,...", help=f"Whom to run beside Penstock: {', '.join(PEERS)}.")
    ] = "spark,spark-defaults,duckdb",
    json: Json = None,
) -> None:
    """Run VWAP over 60 s windows on the same files in every system, and compare speed and results."""
    wanted = _read_peers(peers)
    bench = _benchmark("vwap")
    code = bench.run(events=events, symbols=symbols, format=format, epochs=epochs, peers=wanted, json=json)
    raise typer.Exit(code or 0)


@app.command()
def latency(json: Json = None) -> None:
    """Time an epoch of 1,000 rows: stateless, windowed and Python stages, against PySpark's defaults."""
    raise typer.Exit(_benchmark("latency").run(json=json) or 0)


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
