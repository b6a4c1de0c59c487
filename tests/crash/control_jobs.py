"""The jobs of the crash suite of the job manager: ten that each copy their share of a topic to files."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from tests.crash.outputs import of_files

TOPIC = "numbers"
JOBS = 10
PIPELINE = """
import penstock as ps

numbers = ps.read_topic("numbers", schema="id bigint", start="earliest")
pipeline = ps.Pipeline("copy-{part}", numbers.filter("id % {jobs} = {part}").to(ps.files("{folder}")))
"""


def source(part: int, folder: Path) -> bytes:
    """Return the source of one job."""
    return PIPELINE.format(part=part, jobs=JOBS, folder=folder).encode()


class Numbers(threading.Thread):
    """Writes up to `most` numbers to the topic, one after the other; `acknowledged` counts those that the log has."""

    def __init__(self, bootstrap: str, per_second: float = 50.0) -> None:
        super().__init__(name="numbers", daemon=True)
        config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
        self._producer = Producer(config | {"message.timeout.ms": 300_000, "retries": 10_000})
        self._pause, self._ending = 1.0 / per_second, threading.Event()
        self.sent = self.acknowledged = 0
        self.most: float = math.inf
        self.lost: list[str] = []

    def run(self) -> None:
        while not self._ending.wait(self._pause):
            if self.sent >= self.most:
                continue
            self._producer.produce(TOPIC, json.dumps({"id": self.sent}).encode(), on_delivery=self._delivered)
            self.sent += 1
            self._producer.poll(0)
        self._producer.flush(300)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.lost.append(str(error))

    def stop(self) -> None:
        """Stop, once all is acknowledged."""
        self._ending.set()
        self.join(300)
        assert not self.lost, f"the log lost numbers: {self.lost[:3]}"
        assert self.acknowledged == self.sent


def found(folder: Path) -> list[int]:
    """Return the numbers that a job has written."""
    return sorted(int(row["id"]) for row in of_files(folder))
