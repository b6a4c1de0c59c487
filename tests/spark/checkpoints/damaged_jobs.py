"""A job that was stopped, the ways to damage files of its checkpoint, and what is reported then."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import CheckpointError
from penstock.settings import Settings
from penstock.spark.checkpoints.inspect import inspect
from penstock.storage.folders import folder
from tests.conftest import at
from tests.spark.stateful_jobs import feed, job, on, snapshots_soon

FED = 2
Made = Callable[[str], Path]
Row = dict[str, Any]


class Reminder(ps.Process):
    """Gives each row, and waits for a processing time that never comes in a test."""

    output = "k string, v bigint"

    def on_row(self, row: Row, ctx: ps.Context) -> Iterator[Any]:
        ctx.set_timer(ctx.now + timedelta(days=30), "later", clock="processing")
        yield {**ctx.key, "v": row["v"]}

    def on_timer(self, timer: ps.Timer, ctx: ps.Context) -> Iterator[Any]:
        yield {**ctx.key, "v": -1}


def reminders(data: Path) -> ps.Pipeline:
    """A process function with timers, a join of two sources, and rows that a replay would compute otherwise."""
    (data / "in").mkdir(parents=True, exist_ok=True)
    schema = "k string, v bigint, ts timestamp"
    rows = [ps.read_files(str(data / "in"), schema=schema, format="json").named(name) for name in ("one", "two")]
    left, right = (one.event_time("ts", "5s") for one in rows)
    kept = left.key_by("k").process(Reminder).map(lambda row: row, deterministic=False)
    pairs = left.join(right, "v", within=("0s", "0s"))
    return ps.Pipeline(
        "reminders",
        kept.to(ps.files(str(data / "out"), format="json")).named("kept"),
        pairs.to(ps.files(str(data / "pairs"), format="json")).named("pairs"),
    )


def asking(data: Path) -> ps.Pipeline:
    """Rows with what a function answers, which is never the same, joined with a table of files."""
    for name in ("in", "names"):
        (data / name).mkdir(parents=True, exist_ok=True)
    (data / "names" / "1.json").write_text('{"k": "a", "name": "ada"}\n{"k": "b", "name": "bob"}\n')
    schema = "k string, v bigint, ts timestamp"
    rows = ps.read_files(str(data / "in"), schema=schema, format="json").named("values")
    names = ps.read_table(str(data / "names"), connection="files", key="k", schema="k string, name string")
    answered = rows.map(lambda row: row | {"v": random.getrandbits(40)}, schema, deterministic=False)
    return ps.Pipeline("asking", answered.join(names, "k").to(ps.files(str(data / "out"), format="json")))


def uncommit_newest(checkpoint: Path) -> None:
    """As after a kill -9 between the newest epoch's seal and its commit."""
    newest = max(int(path.name) for path in checkpoint.glob("queries/final/commits/[0-9]*"))
    for name in (f"{newest}", f".{newest}.crc"):
        (checkpoint / "queries" / "final" / "commits" / name).unlink()
    (checkpoint / "epochs" / "final" / f"{newest}.json").unlink()


def stopped_jobs(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return what makes a job that read its files in epochs of their own and was stopped.

    It takes the kind of the job's state, or "reminders", with the number of files if that is not the usual one
    ("memory-4"), or "unfinished", whose newest epoch is sealed and not committed. It makes each job once.
    """

    def unfinished(data: Path) -> Path:
        run = asking(data).start(checkpoint=data / "checkpoint", settings=settings)
        for number in range(FED):
            feed(data / "in", number)
            run.process_available()
        run.stop()
        run.wait()
        uncommit_newest(data / "checkpoint")
        shutil.copytree(data, data.with_name(f"{data.name}-whole"))
        return data

    @cache
    def job_on(state: str) -> Path:
        data: Path = tmp_path_factory.mktemp(state)
        name, _, files = state.partition("-")
        if name == "unfinished":
            return unfinished(data)
        made, kind = (reminders(data), "rocksdb") if name == "reminders" else (job(data), name)
        with snapshots_soon(settings):
            run = made.start(checkpoint=data / "checkpoint", settings=on(settings, kind))
            for number in range(int(files or (1 if name == "reminders" else FED))):
                feed(data / "in", number)
                run.process_available()
            # It moves no watermark, and makes one more epoch, which has read a declared time.
            run.checkpoint.tick(at(1))
            run.process_available()
            run.stop()
            run.wait()
        shutil.copytree(data, data.with_name(f"{data.name}-whole"))
        return data

    return job_on


def as_it_was(data: Path) -> Path:
    """The same job as it was when it was stopped, in the same place: its plan has the paths in it."""
    shutil.rmtree(data)
    shutil.copytree(data.with_name(f"{data.name}-whole"), data)
    return data


def delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    data = path.read_bytes()
    third = len(data) // 3
    path.write_bytes(data[:third] + b"\xfe\x00garbled\xff" + data[2 * third + 1 :])


DAMAGES = {"deleted": delete, "cut": cut, "garbled": garble}
# Locks, leftovers of epochs that are done, and messages between the processes of one run: no run reads them.
NOT_READ = r"lease(\.jvm)?|staged/[^/]+/\d+/.*"
OF_DONE_EPOCHS = r"staged/[^/]+/outbox/.*\.arrow"


def files_of(checkpoint: Path, kind: str) -> list[str]:
    """All files that a run may read; of "reminders" only Penstock's own: Spark's are those of the other kinds."""
    found = [str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file()]
    found = [name for name in found if not (kind.startswith("reminders") and name.startswith("queries/"))]
    others = NOT_READ if kind == "unfinished" else f"{NOT_READ}|{OF_DONE_EPOCHS}"
    return sorted(name for name in found if (checkpoint / name).stat().st_size and not re.fullmatch(others, name))


def reported(checkpoint: Path) -> str:
    try:
        return "\n".join(f"{name} {reason}" for name, reason in inspect(folder(checkpoint)).all_damaged.items())
    except CheckpointError as error:
        return str(error)


def newest_record(checkpoint: Path) -> Path:
    return max((checkpoint / "epochs" / "final").glob("*.json"), key=lambda path: int(path.stem))


def data_file(name: str) -> str:
    """The file that a checksum of Hadoop's is about; any other file itself."""
    return re.sub(r"(^|/)\.([^/]+)\.crc$", r"\1\2", name)


KINDS = ["memory", "rocksdb", "reminders"]
# In short, each backend and each damage once.
QUICK_WALKS = [("memory", "cut"), ("memory", "garbled"), ("rocksdb", "deleted")]
QUICK_WALKS += [("unfinished", "deleted"), ("unfinished", "garbled")]
WALKS = [
    pytest.param(kind, damage, marks=[] if (kind, damage) in QUICK_WALKS else [pytest.mark.slow])
    for kind in (*KINDS, "unfinished", *(f"{kind}-4" for kind in KINDS))
    for damage in DAMAGES
]
