"""Promise: a mistake is one error that names the node or option, the value and what to do; there is no traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.mistakes import ALL, HEAD, Case

Penstock = Callable[..., Any]


@pytest.mark.parametrize("case", ALL, ids=[code for code, *_ in ALL])
def test_a_mistake_in_a_pipeline_names_itself_and_its_remedy(penstock: Penstock, case: Case) -> None:
    code, kind, texts = case
    Path("job.py").write_text(f"{HEAD}\n{code[1:] if code.startswith('!') else f'job = {code}'}\n")
    said = penstock("explain", "job.py")
    assert said.code == 2, said
    assert re.match(rf"{kind}: \S.*\n  \S", said.err), said.err
    for text in texts:
        assert text in said.err
    assert "Traceback" not in said.err
    assert "bug in Penstock" not in said.err
    assert " object at 0x" not in said.err


def test_there_are_many_mistakes() -> None:
    assert len(ALL) > 100


@pytest.mark.parametrize(
    ("connection", "setting", "variable", "origin", "remedy"),
    [
        ("127.0.0.1:1", "", "", "connection= of the pipeline", "correct the address in connection= of the pipeline"),
        ("", "127.0.0.1:1", "", "the setting log", "correct the address in the setting log"),
        ("", "", "127.0.0.1:1", "PENSTOCK_LOG of the environment", "in PENSTOCK_LOG of the environment"),
    ],
)
def test_an_address_where_nobody_listens_says_where_it_is_written(
    penstock: Penstock,
    monkeypatch: pytest.MonkeyPatch,
    connection: str,
    setting: str,
    variable: str,
    origin: str,
    remedy: str,
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", variable)
    Path("penstock.toml").write_text(f'[settings]\nlog = "{setting}"\n' if setting else "")
    given = f', connection="{connection}"' if connection else ""
    Path("job.py").write_text(f'{HEAD}\njob = out(ps.read_topic("t", schema="a int"{given}))\n')
    said = penstock("run", "job.py")
    assert said.code == 2
    assert f"SettingsError: {origin}: nothing listens at 127.0.0.1:1\n" in said.err
    assert remedy in said.err
    assert ("PENSTOCK_LOG" in said.err) == (origin.startswith("PENSTOCK_LOG"))


def test_a_bad_address_in_the_settings_names_the_setting(penstock: Penstock) -> None:
    Path("penstock.toml").write_text('[settings.connections]\nshop = "host:port"\n')
    Path("job.py").write_text(f'{HEAD}\njob = out(ps.read_topic("t", schema="a int", connection="shop"))\n')
    said = penstock("run", "job.py")
    assert said.code == 2
    assert "BadValue: the setting connections.shop: 'port' of 'host:port' is not a port" in said.err


def test_a_file_that_is_missing_and_one_without_permission_exit_with_2(penstock: Penstock) -> None:
    Path("job.py").write_text(f'{HEAD}\njob = out(ps.read_files("no/x.csv", schema="a int"))\n')
    said = penstock("run", "job.py")
    assert said.code == 2
    assert re.search(r"^MissingInput: .*no/x\.csv.*\n  \S", said.err, re.MULTILINE), said.err
