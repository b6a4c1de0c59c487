"""Promise: exactly once, end to end, under kill -9. A few runs of the crash matrix; `make crash` plays many."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from penstock.settings import Settings
from tests.crash.cells import Cell
from tests.crash.driver import Driver
from tests.crash.expected_output import Findings
from tests.crash.last_life import LastLifeHere
from tests.crash.lease import outlived_by
from tests.crash.run import Run
from tests.crash.services import Services

EPOCHS, FEWER_EPOCHS = 8, 6


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    with Services(tmp_path_factory.mktemp("services")) as made:
        yield made


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("PENSTOCK_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"PENSTOCK_TEST_SEED={chosen}")
    return chosen


def play(run: Run) -> None:
    """Play a run to its end; every row has to be there once."""
    run.play()
    assert run.trouble == ""
    assert set(run.findings.values()) == {Findings()}


# In short a worker and the JVM die between topics, and the next life is in this process; the driver's Python dies in
# tests/driver/test_driver.py, and that a second driver is kept out is then what tests/e2e/test_run.py has.
@pytest.mark.parametrize(
    "victims", [("worker", "jvm"), pytest.param(("python", "worker", "jvm"), marks=pytest.mark.slow)], ids=" ".join
)
def test_processes_die_between_two_topics_and_every_row_is_there_once(
    victims: tuple[str, ...], tmp_path: Path, services: Services, seed: int, settings: Settings
) -> None:
    short = "python" not in victims
    cell, epochs = Cell("topic", "topic", "aggregated", "native", "driver"), FEWER_EPOCHS if short else EPOCHS
    run = Succession(seed, cell, tmp_path, services, epochs, killings=len(victims))
    run.victims, run.shared = victims, settings if short else None
    play(run)
    assert run.jvm_outlived_its_lease is (None if short else False)
    assert run.kills == [*victims]


@pytest.mark.slow
def test_a_killed_driver_writes_nothing_once_another_has_its_checkpoint_and_one_without_jvm_ends(
    tmp_path: Path, services: Services, seed: int
) -> None:
    run = Succession(seed, Cell("files", "files", "windowed", "spark", "driver"), tmp_path, services, EPOCHS)
    run.keeps_out = True
    play(run)
    assert run.jvm_outlived_its_lease is False
    assert run.kills == [*run.victims]


@dataclass
class Succession(Run):
    """While the driver runs a second one is kept out, if asked; when its Python is killed the next waits for its JVM.

    And when that one's JVM is killed, its Python says so and ends. With `shared` settings the last life is here.
    """

    jvm_outlived_its_lease: bool | None = field(default=None, init=False)
    keeps_out: bool = field(default=False, init=False)
    victims: tuple[str, ...] = field(default=("python", "jvm"), init=False)
    shared: Settings | None = field(default=None, init=False)

    def _driver(self) -> Driver:
        made = super()._driver()
        if self.shared is None:
            return made
        return LastLifeHere(self.shared, made.command, made.env, made.folder, made.deadline)

    def _wait_for_a_moment(self) -> None:
        self.driver.wait_for_epochs(self.driver.epochs + (2 if self.keeps_out else 1))

    def _kill(self) -> str:
        jvm = next(one for one in self.driver.family if one.name() == "java")
        match self.victims[len(self.kills)]:
            case "python":
                return self._kill_python(jvm)
            case "worker":
                return self.driver.kill_worker(self.chance)
        return self._kill_jvm(jvm)

    def _kill_jvm(self, jvm: psutil.Process) -> str:
        jvm.kill()
        self.driver.wait()
        assert self.driver.process is not None
        assert self.driver.process.returncode == 1, self.driver.said
        assert "JVM exited" in self.driver.said
        return "jvm"

    def _kill_python(self, jvm: psutil.Process) -> str:
        assert self.driver.process is not None
        if self.keeps_out:
            self._keep_a_second_one_out()
        self.driver.process.kill()
        self.driver.process.wait()
        assert jvm.is_running(), "the JVM lives a moment longer"
        self.driver.start()
        self.jvm_outlived_its_lease = outlived_by([jvm], self.folder / "checkpoint", self.driver.process.pid)
        return "python"

    def _keep_a_second_one_out(self) -> None:
        folder = self.folder / "second"
        folder.mkdir()
        second = Driver(self.driver.command, self.driver.env, folder, self.driver.deadline)
        second.start()
        second.wait()
        assert second.process is not None
        assert second.process.returncode == 2, second.said
        assert "is in use" in second.said


@pytest.mark.slow
def test_workers_die_between_two_topics_and_every_row_is_there_once(
    tmp_path: Path, services: Services, seed: int
) -> None:
    play(Run(seed, Cell("topic", "topic", "aggregated", "native", "worker"), tmp_path, services, EPOCHS))


@pytest.mark.slow
def test_a_worker_dies_and_the_clock_jumps_back_yet_every_row_is_there_once(
    tmp_path: Path, services: Services, seed: int
) -> None:
    run = ClockBack(seed, Cell("topic", "topic", "aggregated", "native", "worker"), tmp_path, services, EPOCHS)
    play(run)


@dataclass
class ClockBack(Run):
    """With each worker that is killed the wall clock goes an hour back, and later on again."""

    def _environment(self) -> dict[str, str]:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler here, and without it the clock cannot be turned back")
        library = self.folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl", "-lpthread"], check=True)
        return super()._environment() | {"LD_PRELOAD": str(library), "CLOCK_BEHIND": str(self._behind)}

    @property
    def _behind(self) -> Path:
        return self.folder / "clock-behind"

    def _kill(self) -> str:
        self._behind.unlink() if self._behind.exists() else self._behind.touch()
        return super()._kill()
