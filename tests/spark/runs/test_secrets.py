"""A run with secrets in every connection: none is in the checkpoint, the output of commands or the log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import penstock as ps
from penstock.cli import main
from penstock.settings import Settings
from tests.connectors.sinks.receiver import receiving
from tests.databases import PASSWORD

if TYPE_CHECKING:
    from tests.databases import PostgresServer

SECRET = "Hunter-2"


def holding(folder: Path, secret: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def test_no_secret_of_a_run_is_in_its_checkpoint_its_savepoint_or_its_log(
    settings: Settings,
    event_log: str,
    postgres: PostgresServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = f"kept_{uuid4().hex}"
    log = f"kafka://{event_log}?sasl.oauthbearer.client.secret={SECRET}&ssl.key.password={SECRET}"
    caplog.set_level(logging.DEBUG)
    checkpoint = tmp_path / "checkpoint"
    with receiving() as receiver:
        address = receiver.url.replace("://", f"://ada:{SECRET}@") + f"&token={SECRET}"
        rows = ps.from_items([{"n": 1}, {"n": 2}], "n bigint")
        pipeline = ps.Pipeline(
            "hush",
            rows.to(ps.topic(f"hush-{uuid4().hex}", connection=log)),
            rows.to(ps.table(table, connection=postgres.url)),
            rows.to(ps.webhook(address, headers={"Authorization": SECRET})),
            rejected_to=ps.topic(f"hush-bad-{uuid4().hex}", connection=log),
        )
        pipeline.run(until="ended", checkpoint=checkpoint, settings=settings)
        assert len(receiver.rows) == 2
    assert sorted(postgres.sql(f"SELECT n FROM {table}")) == [(1,), (2,)]
    for command in (["checkpoints", str(checkpoint)], ["savepoint", "create", str(checkpoint)]):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["penstock", *command])
        with pytest.raises(SystemExit):
            main()
    said = "".join(capfd.readouterr()) + caplog.text
    for secret in (SECRET, PASSWORD, PASSWORD.replace("/", "%2F")):
        assert holding(tmp_path, secret) == []
        assert secret not in said
