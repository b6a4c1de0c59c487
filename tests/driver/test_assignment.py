"""Assignments: what a driver is given to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.driver.assignment import read_assignment, read_assignment_file, with_secrets
from penstock.errors import BadValue, MissingSecret

LEAST = {"job": "j1", "target": "/v/job.py", "checkpoint": "/c"}


def test_an_assignment_leads_to_its_entry_with_its_arguments() -> None:
    found = read_assignment({**LEAST, "entry": "vwap", "arguments": {"n": 3, "on": True, "w": "30s", "none": None}})
    assert found.entry_point == "/v/job.py:vwap"
    assert found.sets == ["n=3", "on=true", "w=30s"]


def test_fields_of_a_newer_manager_and_nulls_are_ignored() -> None:
    assert read_assignment({**LEAST, "colour": "red", "restore_from": None, "type": "run"}) == read_assignment(LEAST)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"job": "a/b"}, "is no id"),
        ({"target": ""}, "'target' is missing"),
        ({"until": "dawn"}, "until = 'dawn'"),
        ({"settings": [1]}, "settings is not"),
    ],
)
def test_a_bad_assignment_is_refused(change: dict[str, Any], wrong: str) -> None:
    with pytest.raises(BadValue, match=wrong):
        read_assignment({**LEAST, **change})


def test_an_assignment_file_may_be_missing_but_not_broken(tmp_path: Path) -> None:
    assert read_assignment_file(tmp_path / "assignment.json") is None
    for text in ("{", "[]"):
        (tmp_path / "assignment.json").write_text(text)
        with pytest.raises(BadValue):
            read_assignment_file(tmp_path / "assignment.json")


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(read_assignment({**LEAST, "environment": {"P": "hunter2"}}))


def test_secrets_are_put_into_settings_and_arguments() -> None:
    settings = {"connections": {"db": "postgresql://ada:${secret:CRM}@db/shop"}}
    found = read_assignment({**LEAST, "settings": settings, "arguments": {"key": "${secret:API}"}})
    filled = with_secrets(found, {"PENSTOCK_SECRET_CRM": "abc", "PENSTOCK_SECRET_API": "xyz"})
    assert filled.settings == {"connections": {"db": "postgresql://ada:abc@db/shop"}}
    assert filled.sets == ["key=xyz"]
    with pytest.raises(MissingSecret):
        with_secrets(found, {})
