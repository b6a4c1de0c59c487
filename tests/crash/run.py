"""One run of the matrix: a job under which something dies or fails, restarted and judged."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.cluster.standalone import QUICK
from tests.crash import outputs
from tests.crash.cells import CHOICES, Cell
from tests.crash.disk import SmallDisk
from tests.crash.driver import Driver, WarmDriver, kill_worker
from tests.crash.expected_output import Findings, judge
from tests.crash.inputs import Input, made, write_files, write_topic
from tests.crash.services import Services, joined
from tests.log.server import LogProcess

JOB = Path(__file__).with_name("jobs.py")
EPOCHS, EPOCH_ROWS = 10, 200
# Epochs of the runs with many rows; each partition of theirs has more than one of Spark's Arrow batches.
MANY_EPOCHS, MANY_ROWS = 2, 75_000
ARROW_ROWS = {"few": 65_536, "wide": 20, "many": 65_536}
DISK_MEGABYTES = {"few": 24, "wide": 96, "many": 256}
KILLS = 2
# A job may fail by what was killed under it; who restarts it (here the harness) must not need long for that.
MOST_LIVES = 6
RUN_SECONDS = 600
REFUSED = 2


@dataclass
class Run:
    """One run; `kills` tells what was killed in it, and `trouble` why it did not come to its end.

    A `cold` one starts a new process for each life of the job, and kills that one while it starts, too.
    """

    seed: int
    cell: Cell
    folder: Path
    services: Services
    epochs: int = EPOCHS
    killings: int = KILLS
    cold: bool = True
    kills: list[str] = field(default_factory=list)
    findings: dict[str, Findings] = field(default_factory=dict)
    trouble: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.name = f"run{self.seed}x{random.SystemRandom().randrange(10**6)}"
        self.chance = random.Random(f"kills of {self.seed}")
        self.outputs = self.folder
        self.checkpoint = self.folder / "checkpoint"
        self.broker: LogProcess | None = None
        self.disk: SmallDisk | None = None
        self._ends = ExitStack()

    @property
    def total(self) -> Findings:
        """All findings; a run that did not end has none, and counts as wrong."""
        total = Findings(wrong=1 if self.trouble else 0)
        for one in self.findings.values():
            total = total.plus(one)
        return total

    def play(self) -> None:
        """Run the job to its end through all kills, and judge it."""
        with self._ends:
            try:
                self._prepare()
                self._live()
                self.findings = judge(self.given, self.cell, self._written())
                self._refuse_bugs()
            except Exception as error:  # a run that cannot be judged is told of, and the next one is played
                self.trouble = f"{type(error).__name__}: {error}"

    def _prepare(self) -> None:
        """Make what the run has of its own: its input, its driver, and what is killed under it."""
        many = self.cell.rows == "many"
        epochs, rows = (MANY_EPOCHS, MANY_ROWS * int(self.cell.parallelism)) if many else (self.epochs, EPOCH_ROWS)
        self.given: Input = made(self.seed, epochs * rows, epochs, wide=self.cell.rows == "wide")
        if self.cell.victim == "disk":
            self._prepare_disk()
        if self.cell.has_topics and self.broker is None:
            self.broker = self._own_broker(self.folder) if self.cell.victim == "broker" else self.services.broker
        if self.cell.source == "topic":
            assert self.broker is not None
            write_topic(self.given, self.broker.bootstrap, f"{self.name}-input")
        else:
            write_files(self.given, self.folder / "input")
        if self.cell.on_cluster:
            self._ends.enter_context(self.services.one_on_cluster)
        self.driver = self._driver()
        self._ends.callback(self.driver.end)

    def _prepare_disk(self) -> None:
        """Put the checkpoint, the files and SQLite's databases or the broker's log segments on a disk of their own."""
        self.disk = SmallDisk.mounted(self.folder / "disk", DISK_MEGABYTES[self.cell.rows])
        self._ends.callback(self.disk.end)
        kinds = {*self.cell.sinks.values()}
        there = ["checkpoint", *(["outputs"] if kinds & {"files", "sqlite"} else [])]
        self.full = self.chance.choice([*there, *(["log"] if self.cell.has_topics else [])])
        if self.full == "checkpoint":
            self.checkpoint = self.disk.folder / "checkpoint"
        elif self.full == "outputs":
            self.outputs = self.disk.folder
        else:
            self.broker = self._own_broker(self.disk.folder)

    def _own_broker(self, folder: Path) -> LogProcess:
        return self._ends.enter_context(LogProcess(folder, "--partitions", "2"))

    def _live(self) -> None:
        lives: dict[str, Callable[[], None]] = {
            "task": self._live_with_failing_tasks,
            "sibling": self._live_beside_a_sibling,
            "checkpoint": self._live_from_an_older_checkpoint,
            "disk": self._live_on_a_full_disk,
        }
        lives.get(self.cell.victim, self._live_through_kills)()
        self._to_the_end()

    def _live_through_kills(self) -> None:
        self.driver.start()
        for _ in range(self.killings):
            self._wait_for_a_moment()
            if self.driver.succeeded:
                break
            if self.driver.runs:
                self.kills.append(self._kill())
            if not self.driver.runs:
                self._again()

    def _live_with_failing_tasks(self) -> None:
        self.driver.start(self._faults("task", seed=self.seed))
        self.driver.wait()
        self.kills.append(f"{len([*(self.folder / 'faults').glob('*')])} tasks failed, exit {self.driver.code}")

    def _live_beside_a_sibling(self) -> None:
        """In one epoch a task fails until the job does; others are killed in the middle of their partitions."""
        fails = self.chance.choice([*self.cell.sinks])
        self.driver.start(self._faults("sibling", epoch=self.chance.randrange(1, 4), fails=fails))
        self.driver.wait()
        self.kills.append(f"job of the siblings of '{fails}', exit {self.driver.code}")

    def _live_from_an_older_checkpoint(self) -> None:
        """Put an older copy of the checkpoint back: it is refused, or every row is there once all the same."""
        older, newest = self.folder / "older", self.folder / "newest"
        for copy in (older, newest):
            self.driver.start()
            self._wait_for_a_moment()
            self._stop_or_kill()
            if not (self.checkpoint / "penstock.json").exists():
                # An empty folder is no older checkpoint: a job that starts over in it reports rows of an earlier run.
                self.kills.append("no checkpoint yet")
                return
            shutil.copytree(self.checkpoint, copy)
        shutil.rmtree(self.checkpoint)
        shutil.copytree(older, self.checkpoint)
        before = self.driver.env["PENSTOCK_EPOCH_ROWS"]
        self.driver.env["PENSTOCK_EPOCH_ROWS"] = str(int(before) * 3 // 2)
        self.driver.start()
        self.driver.wait()
        self.kills.append(f"older checkpoint put back: exit {self.driver.code}")
        if self.driver.code == REFUSED:
            assert "LedgerAhead" in self.driver.said, f"it was refused for another reason: {self.driver.said[-1000:]}"
            shutil.rmtree(self.checkpoint)
            shutil.copytree(newest, self.checkpoint)
            self.driver.env["PENSTOCK_EPOCH_ROWS"] = before

    def _stop_or_kill(self) -> None:
        if self.driver.runs and self.chance.random() < 0.5:
            # A copy of a checkpoint that a JVM still writes would be of no moment in time.
            self.kills.append(f"{self.driver.kill(self.chance, 'both')} after {self.driver.epochs} epochs")
        else:
            self.driver.stop()

    def _live_on_a_full_disk(self) -> None:
        assert self.disk is not None
        self.driver.start()
        self._wait_for_a_moment()
        self.disk.fill()
        self.driver.rest(self.chance.random() * 5)
        self.kills.append(f"disk of {self.full} full after {self.driver.epochs} epochs, exit {self.driver.code}")
        self.disk.free()
        if self.broker is not None and not self.broker.runs:
            self.broker.start()
        if not self.driver.runs:
            self._again()

    def _to_the_end(self) -> None:
        self.driver.wait()
        while not self.driver.succeeded:
            self._again()
            self.driver.wait()

    def _refuse_bugs(self) -> None:
        """What dies under a job may end it, but with an error that was thought of."""
        for life in self.folder.glob("driver-*.log"):
            said = life.read_text(errors="replace")
            assert "This is a bug in Penstock" not in said, f"{life.name}: {said[-1000:]}"

    def _again(self) -> None:
        assert self.driver.lives < MOST_LIVES, f"the job ends again and again: {self.driver.said[-1000:]}"
        # A job may be restarted with other cores than it had.
        self.driver.env["PENSTOCK_PARALLELISM"] = self.chance.choice(CHOICES["parallelism"])
        self.driver.start()

    def _wait_for_a_moment(self) -> None:
        """Some epochs on, and into the next one: its scan, its writes, its commits; or before the first."""
        epochs = 1 if self.cell.rows == "many" else self.chance.choice([0, 1, 1, 2, 3])
        if epochs:
            self.driver.wait_for_epochs(self.driver.epochs + epochs)
        self.driver.rest(self.chance.random() * (0.6 if epochs else 8.0 if self.cold else 2.0))

    def _faults(self, kind: str, **more: Any) -> dict[str, Any]:
        """Return what tasks are to do; of a driver that is started anew nothing can be asked."""
        return {} if self.cold else {"kind": kind, "folder": str(self.folder / "faults"), **more}

    def _kill(self) -> str:
        kill: dict[str, Callable[[], str]] = {
            "driver": lambda: self.driver.kill(self.chance),
            "worker": lambda: self.driver.kill_worker(self.chance),
            "broker": self._kill_broker,
            "cluster": self._kill_on_cluster,
        }
        return f"{kill[self.cell.victim]()} after {self.driver.epochs} epochs"

    def _kill_broker(self) -> str:
        assert self.broker is not None
        self.broker.kill()
        self.driver.rest(self.chance.random() * 2)
        self.broker.start()
        return "broker"

    def _kill_on_cluster(self) -> str:
        cluster, how = self.services.cluster, self.chance.choice(["executor", "executor", "worker", "node"])
        executors = sorted(cluster.executors(), key=lambda one: one.pid)
        if how == "node":
            cluster.replace_worker(self.chance.randrange(len(cluster.pids)))
        elif not executors:
            return "nobody"
        elif how == "executor":
            self.chance.choice(executors).kill()
        else:
            family = [child for one in executors for child in one.children(recursive=True)]
            return f"{kill_worker(family, self.chance)} of an executor"
        return how

    def _written(self) -> dict[str, pa.Table]:
        columns = outputs.COLUMNS
        names = dict.fromkeys(self.cell.sinks, columns[self.cell.computed])
        names |= {"rejected": columns["rejected"]}
        if self.cell.pipeline in ("windowed", "aggregated"):
            names["late"] = columns["late"]
        return {name: outputs.table(self._rows(name), wanted) for name, wanted in names.items()}

    def _rows(self, output: str) -> list[outputs.Row]:
        match self.cell.sinks.get(output, self.cell.sink):
            case "topic":
                assert self.broker is not None
                return outputs.of_topic(self.broker.bootstrap, f"{self.name}-{output}")
            case "postgresql":
                return outputs.of_table(self.services.database, f"{self.name}_{output}")
            case "sqlite":
                return outputs.of_sqlite(self.outputs / f"{output}.db", output)
        return outputs.of_files(self.outputs / output)

    def _driver(self) -> Driver:
        spark = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS[self.cell.rows])}
        env, deadline = self._environment(), time.monotonic() + RUN_SECONDS
        if not self.cold:
            spares = self.services.spares(on_cluster=self.cell.on_cluster)
            return WarmDriver(spares, spark, self._command(), env, self.folder, deadline)
        # Runs are short: a JVM that compiles little starts sooner.
        spark |= {"spark.driver.extraJavaOptions": QUICK}
        if self.cell.on_cluster:
            env["PENSTOCK_SPARK_MASTER"] = self.services.cluster.url
            spark |= self.services.spark
        return Driver(self._command(), env | {"PENSTOCK_SPARK": joined(spark)}, self.folder, deadline)

    def _command(self) -> list[str]:
        cell = self.cell
        given = {"run": self.name, "folder": self.folder, "outputs": self.outputs, "consumers": cell.consumers}
        given |= {"source": cell.source, "sink": cell.sink, "pipeline": cell.computed}
        sets = [f"--set={name}={value}" for name, value in given.items()]
        return ["run", f"{JOB}:job", *sets, "--until", "ended", "--checkpoint", str(self.checkpoint)]

    def _environment(self) -> dict[str, str]:
        env = {
            "PENSTOCK_EPOCH_ROWS": str(self.given.epoch_rows),
            # Keyed state is so small that it would all be in Spark's.
            "KEYED_TAIL_BYTES": "200",
            "PENSTOCK_LANE": "auto" if self.cell.lane == "native" else "spark",
            "PENSTOCK_PARALLELISM": self.cell.parallelism,
            "PENSTOCK_STATE": self.chance.choice(["memory", "rocksdb"]),
        }
        if self.broker is not None:
            env["PENSTOCK_LOG"] = self.broker.bootstrap
        if "postgresql" in self.cell.sinks.values():
            env["PENSTOCK_CONNECTIONS"] = f"database={self.services.database}"
        return env
