"""Builds the plan of a submitted pipeline in a child process with limits, before the job is accepted."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import errors
from penstock.control.supervisor.drivers.processes import MARKER, kill_all
from penstock.errors import BadEntry, PenstockError

# No secrets: the code that is checked is whatever a user has sent.
_INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
)
_LARGEST_ANSWER = 16 * 1024**2
_SHOWN_LINES = 5


@dataclass(frozen=True)
class CheckedPlan:
    """The plan of a pipeline, its name, and the nodes whose state in the job's checkpoint it would lose.

    `explain` is the text that `penstock explain` prints.
    """

    pipeline: str
    plan: dict[str, Any]
    lost: tuple[str, ...] = ()
    explain: str = ""


def check_plan(assignment: Mapping[str, Any], seconds: float) -> CheckedPlan:
    """Build the plan; raises the error that `penstock explain` prints."""
    mark = f"check-{secrets.token_hex(6)}"
    with tempfile.TemporaryDirectory(prefix="penstock-check-") as folder:
        path = Path(folder) / "assignment.json"
        path.write_text(json.dumps(assignment))
        try:
            answer, complaint, code = _run(path, mark, seconds)
        finally:
            # Also what it started and left behind.
            kill_all(mark)
    return _read(answer, complaint, code)


def _run(path: Path, mark: str, seconds: float) -> tuple[str, str, int]:
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    with (path.parent / "answer").open("w+b") as answer, (path.parent / "complaint").open("w+b") as complaint:
        child = subprocess.Popen(
            [sys.executable, "-m", "penstock.driver.plan_check", str(path)],
            cwd=path.parent,
            env={**environment, MARKER: mark, "TMPDIR": str(path.parent)},
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=complaint,
            start_new_session=True,
        )
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            message = f"building the plan took more than {seconds:g} s"
            hint = "an entry file only builds pipelines; move work into a source or a function"
            raise BadEntry(message, hint=hint) from None
        finally:
            with contextlib.suppress(OSError):
                child.kill()
            child.wait()
        return _text(answer), _text(complaint), code


def _text(file: Any) -> str:
    file.seek(0)
    data: bytes = file.read(_LARGEST_ANSWER + 1)
    return data.decode(errors="replace")


def _read(answer: str, complaint: str, code: int) -> CheckedPlan:
    try:
        found = json.loads(answer)
    except ValueError:
        last = "\n  ".join(complaint.strip().splitlines()[-_SHOWN_LINES:])
        message = f"building the plan ended with code {code}"
        raise BadEntry(message, hint=last or "the entry file must define a pipeline and return") from None
    if not found.get("ok"):
        raise error_of(found.get("error") or {})
    changes = found.get("changes") or {}
    return CheckedPlan(
        str(found["pipeline"]), found["plan"], tuple(changes.get("lost") or ()), str(found.get("explain", ""))
    )


def error_of(described: Mapping[str, Any]) -> PenstockError:
    """Return the error that the child has described, as the class that it had there."""
    kind = getattr(errors, str(described.get("type")), None)
    known = kind if isinstance(kind, type) and issubclass(kind, PenstockError) else BadEntry
    return known(str(described.get("message", "")), hint=described.get("hint"))
