"""Promise: Java clients, Spark's version and the newest, and Kafka's own command-line tools talk to the log."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from penstock.errors import MissingPart
from penstock.spark.session.jars import fetch
from penstock.spark.session.java import find_java
from tests.brokers import require_kafka
from tests.log.server import LogProcess

SOURCES = Path(__file__).parent / "java"
SECONDS = 120
EXPECTED = """\
committed 500
uncommitted is more true
nodes 1
topics 2
offset 0
offset 250
offset {newest}
offset 0
retention 12345
low 7
group Empty
positions 2
transactions CompleteCommit
producers true
disks 1
deleted true
done
"""


TOOLS = "org.apache.kafka.tools"
TOPICS, CONFIGS = f"{TOOLS}.TopicCommand --bootstrap-server HERE", "kafka.admin.ConfigCommand --bootstrap-server HERE"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand --bootstrap-server HERE"
KEYED = "--reader-property parse.key=true --reader-property key.separator=:"
# Tool and arguments, what it reads, what it says.
STEPS = [
    (f"{TOPICS} --create --topic tools --partitions 2 --config retention.ms=60000", "", "Created topic tools"),
    (f"{TOOLS}.ConsoleProducer --bootstrap-server HERE --topic tools {KEYED}", r"a:1\nb:2\nc:3", ""),
    (
        f"{TOOLS}.consumer.ConsoleConsumer --bootstrap-server HERE"
        " --topic tools --from-beginning --max-messages 3 --group tools-group",
        "",
        "[123]\n[123]\n[123]\n",
    ),
    (f"{TOPICS} --describe --topic tools", "", "PartitionCount: 2.*retention.ms=60000"),
    (f"{CONFIGS} --alter --topic tools --add-config retention.bytes=4321", "", "Completed updating"),
    (f"{CONFIGS} --describe --topic tools", "", "retention.bytes=4321"),
    (f"{TOOLS}.GetOffsetShell --bootstrap-server HERE --topic tools", "", r"tools:0:\d\ntools:1:\d\n"),
    (f"{GROUPS} --list", "", "tools-group"),
    (f"{GROUPS} --describe --group tools-group", "", r"tools-group +tools +0 +(\d) +\1 +0 "),
    (f"{GROUPS} --reset-offsets --group tools-group --topic tools --to-earliest --execute", "", "tools +1 +0"),
    (f"{GROUPS} --delete --group tools-group", "", "successful"),
    (
        f"{TOOLS}.consumer.ConsoleConsumer --bootstrap-server HERE --command-property group.protocol=consumer"
        " --topic tools --from-beginning --max-messages 3 --group modern",
        "",
        "[123]\n[123]\n[123]\n",
    ),
    (f"{GROUPS} --list --type consumer --state", "", "modern +Consumer +Empty"),
    (f"{GROUPS} --describe --group modern", "", r"modern +tools +0 +(\d) +\1 +0 "),
    (f"{TOOLS}.GroupsCommand --bootstrap-server HERE --list", "", "modern +Consumer +consumer"),
    (f"{GROUPS} --delete --group modern", "", "successful"),
    (f"{TOPICS} --describe --topic tools --partition-size-limit-per-response 1", "", "Partition: 0(.|\n)*Partition: 1"),
    (f"{CONFIGS} --describe --entity-type client-metrics", "", ""),
    (f"{TOOLS}.DeleteRecordsCommand --bootstrap-server HERE --offset-json-file OFFSETS", "", "low_watermark: 0"),
    (f"{TOOLS}.LogDirsCommand --bootstrap-server HERE --describe --topic-list tools", "", '"partition":"tools-1"'),
    (f"{TOOLS}.ClusterTool cluster-id --bootstrap-server HERE", "", "Cluster ID: "),
    (f"{TOOLS}.TransactionsCommand --bootstrap-server HERE list", "", "TransactionalId"),
    (
        f"{TOOLS}.ProducerPerformance --bootstrap-server HERE"
        " --topic tools --num-records 5000 --record-size 100 --throughput -1",
        "",
        "5000 records sent",
    ),
    (f"{TOPICS} --alter --topic tools --partitions 3", "", ""),
    (f"{TOPICS} --delete --topic tools", "", ""),
    (f"{TOPICS} --list", "", "^(?!.*tools$)"),
]
BROKER, GROUP = "--entity-type brokers --entity-name 1", "--entity-type groups --entity-name g"
ACLS = f"{TOOLS}.AclCommand --bootstrap-server HERE"
OFFSETS = f"{TOOLS}.GetOffsetShell --bootstrap-server HERE --topic more --time"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand --bootstrap-server HERE"
# The rest of them, for which `make test` has no time.
MORE_STEPS = [
    (f"{TOPICS} --create --topic more --config compression.type=zstd", "", "Created topic more"),
    (
        f"{TOOLS}.ProducerPerformance --bootstrap-server HERE --topic more --num-records 1000 --record-size 100"
        " --throughput -1 --transactional-id perf --transaction-duration-ms 20",
        "",
        "1000 records sent",
    ),
    (f"{TOOLS}.ConsumerPerformance --bootstrap-server HERE --topic more --num-records 1000", "", r", 1000, "),
    (
        f"{TOOLS}.EndToEndLatency --bootstrap-server HERE --topic more --num-records 50 --producer-acks all"
        " --record-size 100",
        "",
        "Percentiles",
    ),
    (f"{OFFSETS} earliest", "", "more:0:0"),
    (f"{OFFSETS} latest", "", "more:0:1[0-9]{3}"),
    (f"{OFFSETS} max-timestamp", "", r"more:0:\d+"),
    (f"{OFFSETS} -4", "", "more:0:0"),
    (f"{OFFSETS} -5", "", "more:0:-1|^$"),
    (f"{ACLS} --add --allow-principal User:alice --operation Read --topic more --group g", "", "User:alice"),
    (f"{ACLS} --list --topic more", "", "operation=READ, permissionType=ALLOW"),
    (
        f"{ACLS} --add --deny-principal User:bob --operation All --topic pre --resource-pattern-type prefixed",
        "",
        "DENY",
    ),
    (f"{ACLS} --list --principal User:bob", "", "patternType=PREFIXED"),
    (f"{ACLS} --remove --topic more --force", "", ""),
    (f"{CONFIGS} --alter {BROKER} --add-config log.retention.ms=7654321", "", "Completed updating"),
    (f"{CONFIGS} --describe {BROKER}", "", "log.retention.ms=7654321"),
    (f"{CONFIGS} --describe --all {BROKER}", "", "broker.id=1|node.id=1"),
    (
        f"{CONFIGS} --alter --entity-type brokers --entity-default --add-config message.max.bytes=2000000",
        "",
        "Completed",
    ),
    (f"{CONFIGS} --describe --entity-type brokers --entity-default", "", "message.max.bytes=2000000"),
    (f"{CONFIGS} --alter {BROKER} --delete-config log.retention.ms", "", "Completed updating"),
    (f"{CONFIGS} --alter {GROUP} --add-config consumer.session.timeout.ms=50000", "", "Completed updating"),
    (f"{CONFIGS} --describe {GROUP}", "", "consumer.session.timeout.ms=50000"),
    (f"{CONFIGS} --describe --entity-type groups", "", "consumer.session.timeout.ms=50000"),
    (
        f"{CONFIGS} --alter --entity-type clients --entity-name c --add-config producer_byte_rate=1000000",
        "",
        "Completed",
    ),
    (f"{CONFIGS} --describe --entity-type clients --entity-name c", "", "producer_byte_rate=1000000"),
    (f"{CONFIGS} --alter --topic more --add-config cleanup.policy=[compact,delete]", "", "Completed updating"),
    (f"{CONFIGS} --describe --topic more", "", "cleanup.policy=compact,delete"),
    (f"{TRANSACTIONS} describe-producers --topic more --partition 0", "", "ProducerId"),
    (f"{TRANSACTIONS} find-hanging --broker-id 1", "", ""),
    (f"{TOOLS}.BrokerApiVersionsCommand --bootstrap-server HERE", "", r"Produce\(0\): 3 to 13|Produce\(0\): 0 to 13"),
    (f"{TOOLS}.FeatureCommand --bootstrap-server HERE describe", "", "group.version"),
    (f"{TOOLS}.ClientMetricsCommand --bootstrap-server HERE --list", "", ""),
    ("kafka.tools.DumpLogSegments --files SEGMENT --deep-iteration", "", "compresscodec: zstd"),
]
DELETED = '{"version": 1, "partitions": [{"topic": "tools", "partition": 0, "offset": 0}]}'


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogProcess]:
    with LogProcess(tmp_path_factory.mktemp("java"), "--group-consumer-heartbeat-interval", "500ms") as server:
        yield server
        assert server.faults == []


def kafka_jars() -> str:
    from benchmarks.peers.kafka import folder

    require_kafka()
    return f"{folder()}{os.sep}*"


def spark_jars() -> str:
    """Spark's Kafka client, with the codecs that come with Spark."""
    try:
        (client,) = (path for path in fetch("kafka") if path.name.startswith("kafka-clients"))
    except MissingPart as error:
        pytest.skip(f"Spark's Kafka client is not on this machine and cannot be fetched: {error}")
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    return f"{client}{os.pathsep}{Path(pyspark.origin).parent / 'jars'}{os.sep}*"


def java(class_path: str, source: str, *arguments: str) -> str:
    """Run a Java program from its source; return what it wrote."""
    program = str(find_java().program)
    listed = subprocess.run([program, "--list-modules"], capture_output=True, text=True, check=False).stdout
    if "jdk.compiler" not in listed:
        pytest.skip("this Java has no compiler: a JDK is needed to run a program from its source")
    command = [program, "-XX:TieredStopAtLevel=1", "-cp", class_path, str(SOURCES / source), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


# In short, Spark's client is the one of tests/spark/runs/test_realtime.py.
@pytest.mark.parametrize(
    "jars",
    [pytest.param(spark_jars, marks=pytest.mark.slow, id="spark's client"), pytest.param(kafka_jars, id="newest")],
)
def test_a_java_application_works_with_default_settings(log: LogProcess, jars: object) -> None:
    assert callable(jars)
    name = str(jars.__name__).replace("_", "-")
    said = java(jars(), "RoundTrip.java", log.bootstrap, name)
    said = re.sub(r"offset 2[0-4]\d", "offset {newest}", said)  # which of the last records is youngest is chance
    assert [line for line in said.splitlines() if not line.startswith("SLF4J")] == EXPECTED.splitlines()


@pytest.mark.slow
def test_java_consumers_of_the_new_protocol_share_and_take_over(log: LogProcess) -> None:
    said = java(kafka_jars(), "Sharing.java", log.bootstrap)
    assert [line for line in said.splitlines() if not line.startswith("SLF4J")] == [
        "shared 4",
        "read 100 different 100",
        "Consumer Stable members 2",
        "taken over, committed 100",
        "topics 4",
    ]


@pytest.mark.slow
def test_kafkas_command_line_tools_work(log: LogProcess, tmp_path: Path) -> None:
    (tmp_path / "offsets.json").write_text(DELETED)
    run_tools(log, tmp_path, STEPS)


@pytest.mark.slow
def test_the_rest_of_kafkas_tools_works(tmp_path: Path) -> None:
    options = ("--acls", "--super-user", "User:ANONYMOUS")
    with LogProcess(tmp_path, *options) as log:
        run_tools(log, tmp_path, MORE_STEPS)
        assert log.faults == []


def run_tools(log: LogProcess, folder: Path, steps: list[tuple[str, str, str]]) -> None:
    """All in one JVM, from files: the class, what it reads, its arguments."""
    named = {
        "HERE": log.bootstrap,
        "OFFSETS": str(folder / "offsets.json"),
        "SEGMENT": str(log.data / "more-0" / f"{0:020d}.log"),
    }
    files = [folder / f"{number:02d}" for number in range(len(steps))]
    for file, (command, given, _) in zip(files, steps, strict=True):
        for name, value in named.items():
            command = command.replace(name, value)
        tool, *arguments = command.split()
        file.write_text("\n".join([tool, given, *arguments]))
    said = java(kafka_jars(), "Tools.java", *map(str, files))
    outputs = re.split(r"^=== \S+ (-?\d+)\n", said, flags=re.MULTILINE)
    done = zip(steps, outputs[:-1:2], outputs[1::2], strict=True)
    failed = [
        f"{command} ({code}): {output}"
        for (command, _, expected), output, code in done
        if code != "0" or not re.search(expected, output)
    ]
    assert failed == []
