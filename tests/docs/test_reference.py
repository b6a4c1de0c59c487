"""Promise: the reference has every public name, command, setting and error."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

import penstock
from penstock import Settings, errors
from penstock.cli import app
from penstock.observe.declarations import METRICS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "reference" / "api"


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "tools" / "docs_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_api_reference_once() -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES.glob("*.md"))
    names = re.findall(r"^::: penstock\.(\w+)$", text, re.MULTILINE)
    assert sorted(names) == sorted(penstock.__all__)


def test_every_command_is_in_the_reference(pages: ModuleType) -> None:
    text = pages.command_line()
    names = get_command(app).list_commands(None)  # type: ignore[attr-defined]
    assert [name for name in names if f"## `penstock {name}`" not in text] == []
    assert "* `--help`" not in text


def test_every_setting_is_in_the_reference_with_a_description(pages: ModuleType) -> None:
    text = pages.settings()
    assert [
        part.name for part in fields(Settings) if f"| `{part.name}` | `PENSTOCK_{part.name.upper()}`" not in text
    ] == []


REQUESTS = [
    "POST /api/v1/jobs",
    "GET /api/v1/jobs",
    "GET /api/v1/jobs/{job}",
    "DELETE /api/v1/jobs/{job}",
    *(
        f"GET /api/v1/jobs/{{job}}/{noun}"
        for noun in ("plan", "epochs", "checkpoints", "savepoints", "exceptions", "logs", "metrics")
    ),
    *(f"POST /api/v1/jobs/{{job}}/{verb}" for verb in ("stop", "cancel", "restart", "rescale", "update", "savepoints")),
    "WS /api/v1/events",
]


def test_every_request_to_the_job_manager_is_in_the_reference(pages: ModuleType) -> None:
    text = pages.rest_api()
    assert [request for request in REQUESTS if f"`{request}`" not in text] == []
    assert "| `POST /api/v1/jobs` | Submit a job" in text
    assert "`file`, `entry`, `name`, `settings`, `arguments`" in text


def test_every_metric_is_in_the_reference(pages: ModuleType) -> None:
    text = pages.metrics()
    assert [one.name for one in METRICS if f"| `{one.name}` |" not in text] == []


def test_every_error_is_in_the_reference(pages: ModuleType) -> None:
    text = pages.errors()
    known = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.PenstockError)]
    assert [one.__name__ for one in known if one is not errors.PenstockError and one.__name__ not in text] == []


def test_the_diagrams_are_those_that_the_tool_draws() -> None:
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "tools" / "diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    images = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs" / "images").glob("*.svg")}
    assert images == {name: draw().svg() for name, draw in tool.DRAWINGS.items()}
