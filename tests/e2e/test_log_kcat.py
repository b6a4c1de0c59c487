"""Promise: kcat, the command line of librdkafka, lists, produces, consumes and queries, with transactions too."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.kafka.compression import CODECS as NUMBERS
from tests.e2e.test_log_settings import stored_codecs
from tests.log.server import LogProcess
from tests.waiting import wait_for

SECONDS = 20
CODECS = NUMBERS | {"none": 0}
pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is missing: apt-get install kcat")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogProcess]:
    with LogProcess(tmp_path_factory.mktemp("kcat"), sync="none") as server:
        yield server
        assert server.faults == []


def create(log: LogProcess, name: str, partitions: int = 1, **config: str) -> None:
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    admin.create_topics([topic])[name].result(SECONDS)


def kcat(log: LogProcess, arguments: str, given: str = "") -> str:
    command = ["kcat", "-b", log.bootstrap, *arguments.split(" ")]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_brokers_and_topics(log: LogProcess) -> None:
    create(log, "listed", 3)
    said = json.loads(kcat(log, "-L -J"))
    assert [each["name"] for each in said["brokers"]] == [log.bootstrap]
    assert said["controllerid"] == said["brokers"][0]["id"] == 1
    (topic,) = (each for each in said["topics"] if each["topic"] == "listed")
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2]
    assert "partition 2, leader 1, replicas: 1, isrs: 1" in kcat(log, "-L -t listed")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("stored", ["producer", "zstd"])
def test_kcat_reads_what_it_wrote_with_keys_headers_and_empty_values(log: LogProcess, codec: str, stored: str) -> None:
    topic = f"round-{codec}-{stored}"
    create(log, topic, compression_type=stored)
    lines = [f"key{number}|value {number} {'x' * number}" for number in range(50)]
    packed = "" if codec == "none" else f"-z {codec} "
    kcat(log, f"-P -t {topic} {packed}-K | -H colour=blue -Z", "\n".join([*lines, "gone|", ""]))
    # librdkafka leaves a batch as it is that would not become smaller; a topic does not.
    expected, small = CODECS["zstd" if stored == "zstd" else codec], set() if stored == "zstd" else {0}
    assert expected in stored_codecs(log.data, topic) <= {expected} | small
    said = kcat(log, f"-C -t {topic} -o beginning -e -q -Z -f %k|%s|%h|%o|%p\\n").splitlines()
    assert said[:-1] == [f"{line}|colour=blue|{offset}|0" for offset, line in enumerate(lines)]
    assert said[-1] == "gone|NULL|colour=blue|50|0"
    assert kcat(log, f"-C -t {topic} -o -2 -c 1 -q -f %k") == "key49"


def test_kcat_finds_offsets_by_time_and_reads_between_times(log: LogProcess) -> None:
    create(log, "timed")
    kcat(log, "-P -t timed", "a\nb\nc\n")
    times = [int(line) for line in kcat(log, "-C -t timed -o beginning -e -q -f %T\\n").splitlines()]
    assert kcat(log, f"-Q -t timed:0:{times[0]}") == "timed [0] offset 0\n"
    assert kcat(log, f"-Q -t timed:0:{times[-1] + 1}") == "timed [0] offset -1\n"
    # librdkafka's names for the ends of a partition, and for its youngest record
    assert [re.findall(r"offset (-?\d+)", kcat(log, f"-Q -t timed:0:{time}")) for time in (-2, -1)] == [["0"], ["3"]]
    assert kcat(log, f"-C -t timed -o s@{times[0]} -o e@{times[-1] + 1} -e -q -f %s") == "abc"


def test_kcat_consumes_as_a_group_and_goes_on_where_it_stopped(log: LogProcess) -> None:
    create(log, "grouped", 2)
    kcat(log, "-P -t grouped -p 0", "1\n2\n")
    kcat(log, "-P -t grouped -p 1", "3\n")
    settings = "-X auto.offset.reset=earliest -q -e -f %s\\n"
    assert sorted(kcat(log, f"{settings} -G readers grouped").split()) == ["1", "2", "3"]
    kcat(log, "-P -t grouped -p 1", "4\n")
    assert kcat(log, f"{settings} -G readers grouped").split() == ["4"]


def test_kcat_sends_all_in_one_transaction(log: LogProcess) -> None:
    create(log, "atomic")
    kcat(log, "-P -t atomic -X transactional.id=atomic", "1\n2\n3\n")
    assert kcat(log, "-C -t atomic -o beginning -e -q -X isolation.level=read_committed").split() == ["1", "2", "3"]
    assert "offset 4" in kcat(log, "-Q -t atomic:0:-1"), "three records and the marker"


def test_a_transaction_of_kcat_that_is_interrupted_shows_nothing_and_the_next_one_ends_it(log: LogProcess) -> None:
    create(log, "torn")
    end = "-Q -t torn:0:-1 -X isolation.level=read_uncommitted"
    command = ["kcat", "-b", log.bootstrap, "-P", "-t", "torn", "-X", "transactional.id=torn", "-X", "linger.ms=0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(f"torn {'x' * 1000}\n" * 3000)  # it reads its input in large pieces
        process.stdin.flush()
        wait_for(lambda: kcat(log, end) != "torn [0] offset 0\n", seconds=SECONDS)
        process.send_signal(signal.SIGINT)
        process.stdin.close()
        process.wait(SECONDS)
    kcat(log, "-P -t torn -X transactional.id=torn", "whole\n")  # aborts what the first one left open
    read = "-C -t torn -o beginning -e -q -f %s\\n"
    assert kcat(log, f"{read} -X isolation.level=read_committed").split() == ["whole"]
    assert kcat(log, f"{read} -X isolation.level=read_uncommitted").split()[0] == "torn"


def test_kcat_hears_why_something_is_refused(log: LogProcess) -> None:
    create(log, "kept", cleanup_policy="compact")
    command = ["kcat", "-b", log.bootstrap, "-P", "-t", "kept"]
    done = subprocess.run(command, input="no key\n", capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "Delivery failed" in done.stderr
    assert "failed to validate record" in done.stderr
    assert kcat(log, "-Q -t kept:0:-1") == "kept [0] offset 0\n"
