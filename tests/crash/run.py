"""One run of the matrix: a job that is killed, restarted and judged."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from tests.cluster.standalone import QUICK
from tests.crash import outputs
from tests.crash.cells import Cell
from tests.crash.driver import Driver
from tests.crash.inputs import Input, made, write_files, write_topic
from tests.crash.judge import Findings, judge
from tests.crash.services import Services

JOB = Path(__file__).with_name("jobs.py")
EPOCHS, EPOCH_ROWS = 20, 200
KILLS = 2
# A job may fail by what was killed under it; who restarts it (here the harness) must not need long for that.
MOST_LIVES = 6
RUN_SECONDS = 600


@dataclass
class Run:
    """One run; `kills` tells what was killed in it, and `trouble` why it did not come to its end."""

    seed: int
    cell: Cell
    folder: Path
    services: Services
    epochs: int = EPOCHS
    killings: int = KILLS
    kills: list[str] = field(default_factory=list)
    findings: dict[str, Findings] = field(default_factory=dict)
    trouble: str = ""

    def __post_init__(self) -> None:
        self.name = f"run{self.seed}x{random.SystemRandom().randrange(10**6)}"
        self.chance = random.Random(f"kills of {self.seed}")
        self.given: Input = made(self.seed, self.epochs * EPOCH_ROWS, self.epochs)
        self.driver = Driver(self._command(), self._environment(), self.folder, time.monotonic() + RUN_SECONDS)

    @property
    def total(self) -> Findings:
        """All findings; a run that did not end has none, and counts as wrong."""
        total = Findings(wrong=1 if self.trouble else 0)
        for one in self.findings.values():
            total = total.plus(one)
        return total

    def play(self) -> None:
        """Run the job to its end through all kills, and judge it."""
        try:
            self._prepare()
            self._live()
            self.findings = judge(self.given, self.cell.pipeline, self._written())
            self._refuse_bugs()
        except Exception as error:  # a run that cannot be judged is told of, and the next one is played
            self.trouble = f"{type(error).__name__}: {error}"
        finally:
            self.driver.end()

    def _prepare(self) -> None:
        if self.cell.source == "topic":
            write_topic(self.given, self.services.broker.bootstrap, f"{self.name}-input")
        else:
            write_files(self.given, self.folder / "input")

    def _live(self) -> None:
        self.driver.start()
        for _ in range(self.killings):
            self._wait_for_a_moment()
            if self.driver.succeeded:
                break
            if self.driver.runs:
                self.kills.append(self._kill())
            if not self.driver.runs:
                self._again()
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
        self.driver.start()

    def _wait_for_a_moment(self) -> None:
        """Some epochs on, and into the next one: its scan, its writes, its commits; or before the first."""
        epochs = self.chance.choice([0, 1, 1, 2, 3])
        if epochs:
            self.driver.wait_for_epochs(self.driver.epochs + epochs)
        self.driver.rest(self.chance.random() * (0.6 if epochs else 8.0))

    def _kill(self) -> str:
        kill: dict[str, Callable[[], str]] = {
            "driver": lambda: self.driver.kill(self.chance),
            "worker": lambda: self.driver.kill_worker(self.chance),
            "broker": self._kill_broker,
            "executor": self._kill_executor,
            "node": self._kill_node,
        }
        return f"{kill[self.cell.victim]()} after {self.driver.epochs} epochs"

    def _kill_broker(self) -> str:
        self.services.broker.kill()
        self.driver.rest(self.chance.random() * 2)
        self.services.broker.start()
        return "broker"

    def _kill_executor(self) -> str:
        found = self.services.cluster.executors()
        if found:
            self.chance.choice(sorted(found, key=lambda one: one.pid)).kill()
        return "executor" if found else "nobody"

    def _kill_node(self) -> str:
        cluster = self.services.cluster
        cluster.replace_worker(self.chance.randrange(len(cluster.pids)))
        return "node"

    def _written(self) -> dict[str, pa.Table]:
        columns = outputs.COLUMNS
        names = outputs.NAMES if self.cell.pipeline != "stateless" else ("out", "rejected")
        wanted = {name: columns[self.cell.pipeline if name == "out" else name] for name in names}
        return {name: outputs.table(self._rows(name), wanted[name]) for name in names}

    def _rows(self, output: str) -> list[outputs.Row]:
        match self.cell.sink:
            case "topic":
                return outputs.of_topic(self.services.broker.bootstrap, f"{self.name}-{output}")
            case "postgresql":
                return outputs.of_table(self.services.database, f"{self.name}_{output}")
        return outputs.of_files(self.folder / output)

    def _command(self) -> list[str]:
        given = {"run": self.name, "folder": self.folder, "source": self.cell.source, "sink": self.cell.sink}
        sets = [f"--set={name}={value}" for name, value in (given | {"pipeline": self.cell.pipeline}).items()]
        checkpoint = ["--checkpoint", str(self.folder / "checkpoint")]
        return ["run", f"{JOB}:job", *sets, "--until", "ended", *checkpoint]

    def _environment(self) -> dict[str, str]:
        env = {
            "PENSTOCK_EPOCH_ROWS": str(self.given.epoch_rows),
            "PENSTOCK_LANE": "auto" if self.cell.lane == "native" else "spark",
            "PENSTOCK_PARALLELISM": "2",
            "PENSTOCK_STATE": self.chance.choice(["memory", "rocksdb"]),
        }
        # Runs are short: a JVM that compiles little starts sooner.
        spark = {"spark.driver.extraJavaOptions": QUICK}
        if self.cell.has_topics:
            env["PENSTOCK_LOG"] = self.services.broker.bootstrap
        if self.cell.sink == "postgresql":
            env["PENSTOCK_CONNECTIONS"] = f"database={self.services.database}"
        if self.cell.on_cluster:
            env["PENSTOCK_SPARK_MASTER"] = self.services.cluster.url
            spark |= self.services.spark
        return env | {"PENSTOCK_SPARK": ",".join(f"{name}={value}" for name, value in spark.items())}
