from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.session.jars import jar_sets

Penstock = Callable[..., Any]


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_list_names_every_jar_and_what_was_fetched(penstock: Penstock) -> None:
    said = penstock("jars", "list")
    assert said.code == 0
    assert all(jar in said.out for each in jar_sets().values() for jar in each.jars)
    assert "kafka   not fetched" in said.out


def test_fetch_of_an_unknown_set_exits_with_2_and_names_those_there_are(penstock: Penstock) -> None:
    said = penstock("jars", "fetch", "kafak")
    assert said.code == 2
    assert "sets: kafka, s3      did you mean 'kafka'?" in said.err


def test_fetch_of_what_is_there_says_where_it_is(penstock: Penstock) -> None:
    for file in jar_sets()["kafka"].files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    said = penstock("jars", "fetch", "kafka")
    assert (said.code, said.out) == (0, f"kafka: 4 jars, 0 MB, in {jar_sets()['kafka'].folder}\n")
    assert "kafka   fetched" in penstock("jars", "list").out
