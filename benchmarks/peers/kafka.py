"""Apache Kafka, one node in KRaft mode, from Maven Central: `python -m benchmarks.peers.kafka install`."""

from __future__ import annotations

import base64
import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers.broker import Broker, NotStarted, free_port
from penstock.errors import PenstockError
from penstock.spark.session.jars import retrieve
from penstock.spark.session.java import cache_folder, find_java

VERSION = "4.2.0"
# The broker, and the console tools.
JARS = (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
USAGE = "usage: python -m benchmarks.peers.kafka install [IVY_SETTINGS]"
# What its own start script passes to Java.
_JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_CLUSTER = base64.urlsafe_b64encode(b"penstock-peer-01").decode().rstrip("=")
# Kafka's defaults, but for what one node cannot have; and records of other times stay, as tests write them.
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
log.retention.ms=-1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def folder() -> Path:
    """Return where its jars are kept."""
    return cache_folder() / f"kafka-{VERSION}"


def install(settings: Path | None = None) -> Path:
    """Fetch Kafka with all that it depends on, unless it is there; return the folder of its jars."""
    target = folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{target}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process fetches, others wait for it
        if not target.is_dir():
            _fetch(target, settings)
    return target


def _fetch(target: Path, settings: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="kafka-", dir=target.parent) as work:
        fresh = Path(work, "jars")
        fresh.mkdir()
        retrieve(JARS, fresh, dependencies=True, settings=settings)
        fresh.rename(target)


def java(*arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command that runs a class of Kafka: the broker, or one of its tools."""
    return [str(find_java().program), *options, "-cp", f"{folder()}{os.sep}*", *arguments]


class KafkaServer(Broker):
    """Apache Kafka on this machine; raises MissingPart where it cannot be fetched."""

    def _prepare(self, folder: Path) -> list[str]:
        install()
        self._port = free_port()
        properties = folder / "server.properties"
        text = _PROPERTIES.format(port=self._port, controller=free_port(), data=folder / "data")
        properties.write_text(text)
        _run(java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)))
        return java("kafka.Kafka", str(properties), options=_JAVA_OPTIONS)

    def _address(self, log: Path) -> str:
        return f"127.0.0.1:{self._port}"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotStarted(f"Kafka's data folder could not be made: {(done.stderr or done.stdout).strip()[-300:]}")


def main(arguments: list[str]) -> int:
    """Install it; 0 done, 1 it could not be fetched, 2 a wrong command."""
    match arguments:
        case ["install", *settings] if len(settings) < 2:
            try:
                print(f"Kafka {VERSION} in {install(*map(Path, settings))}")
            except PenstockError as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                return 1
            return 0
    print(USAGE, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
