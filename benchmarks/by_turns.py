"""A job that is run by Penstock and by hand in PySpark, by turns, in one session and so with the same settings."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SYSTEMS = ("penstock", "spark")


@dataclass(frozen=True)
class Job:
    """What to run; `epoch_rows` is what a file of each input has."""

    input: str
    work: str
    epoch_rows: int
    cores: int
    within_s: int
    runs: int = 3

    @property
    def settings(self) -> Any:
        """The settings of both."""
        import penstock as ps

        return ps.Settings(epoch_rows=self.epoch_rows, parallelism=self.cores)

    def session(self) -> Any:
        """Return Spark's session, as a query of Penstock's has it."""
        from penstock.spark.session.spark_session import query_settings, session

        spark = session(self.settings)
        for key, value in query_settings(self.settings, branches=False).items():
            spark.conf.set(key, value)
        return spark


# A system's run: the job, and the folder of its output.
Run = Callable[[Job, str], None]


def run_by_turns(job: Job, penstock: Run, spark: Run) -> None:
    """Run once to warm up, then each in turn; the order changes from round to round. Print the seconds of each."""
    runs = dict(zip(SYSTEMS, (penstock, spark), strict=True))
    seconds: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    outputs = dict.fromkeys(SYSTEMS, "")
    for number in range(job.runs + 1):
        for system in SYSTEMS if number % 2 else SYSTEMS[::-1]:
            outputs[system] = f"{job.work}/{system}-{uuid.uuid4().hex[:8]}"
            started = time.perf_counter()
            runs[system](job, outputs[system])
            if number:
                seconds[system].append(time.perf_counter() - started)
    print("\n" + json.dumps({"seconds": seconds, "outputs": outputs}), flush=True)
