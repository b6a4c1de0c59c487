"""Assignments: what the job manager gives a driver to run, as `assignment.json` or as a `run` message."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from penstock.errors import BadValue, choices
from penstock.secret_references import from_environment, with_values

FILE = "assignment.json"
Until = Literal["stopped", "drained", "ended"]
_ID = re.compile(r"[\w.-]+")
_NEEDED = ("job", "target", "checkpoint")


@dataclass(frozen=True)
class Assignment:
    """One job to run.

    job, name, attempt  the job's id and name, and how often it was started
    target, entry       path of the Python or SQL file, and the name of the pipeline in it; None if it has only one
    arguments           arguments of the entry function; these and settings may refer to secrets: `${secret:NAME}`
    until, settings, checkpoint, allow_drop  as of `Pipeline.start`; settings as of `Settings.load`
    savepoints          folder of the job's savepoints; None is the setting's
    token               fencing token of the manager
    restore_from        savepoint that replaces the checkpoint before the job starts
    restore_id          identifies the restore: one that was done is not repeated; default: the savepoint
    pool                name of the pool whose jobs share this driver; None if the driver runs this job only
    environment         variables with secrets; they come by message only, and are never written to disk
    """

    job: str
    target: str
    checkpoint: str
    name: str = ""
    attempt: int = 1
    entry: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    until: Until = "stopped"
    settings: Mapping[str, Any] = field(default_factory=dict)
    savepoints: str | None = None
    token: int | None = None
    restore_from: str | None = None
    restore_id: str | None = None
    allow_drop: tuple[str, ...] = ()
    pool: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def entry_point(self) -> str:
        """The entry as `FILE.py[:name]`."""
        return f"{self.target}:{self.entry}" if self.entry else self.target

    @property
    def sets(self) -> list[str]:
        """The arguments as the texts of `--set key=value`."""
        return [f"{name}={_text(value)}" for name, value in self.arguments.items() if value is not None]


def read_assignment(content: Mapping[str, Any]) -> Assignment:
    """Return the assignment in a message or file; fields that a newer manager may add are ignored.

    >>> read_assignment({"job": "a1", "target": "job.py", "checkpoint": "c", "arguments": {"n": 3}}).sets
    ['n=3']
    """
    given = {part.name: content[part.name] for part in fields(Assignment) if content.get(part.name) is not None}
    for name in _NEEDED:
        if not isinstance(given.get(name), str) or not given[name]:
            message = f"assignment: '{name}' is missing"
            raise BadValue(message, hint=f"it has: {', '.join(content)}")
    if not is_job_id(given["job"]):
        message = f"assignment: job = {given['job']!r} is no id"
        raise BadValue(message, hint="an id has letters, digits, '-', '_' and '.'")
    if given.get("until", "stopped") not in get_args(Until):
        message = f"assignment: until = {given['until']!r} is not known"
        raise BadValue(message, hint=choices("until", get_args(Until)))
    for name in ("arguments", "settings", "environment"):
        if not isinstance(given.get(name, {}), Mapping):
            message = f"assignment: {name} is not a JSON object"
            raise BadValue(message)
    return Assignment(**{**given, "allow_drop": tuple(given.get("allow_drop", ()))})


def is_job_id(text: str) -> bool:
    """Return whether a text can be the id of a job: it is part of the names of files."""
    return _ID.fullmatch(text) is not None


def with_secrets(assignment: Assignment, environment: Mapping[str, str]) -> Assignment:
    """Return an assignment with the values of the secrets that its settings and arguments refer to."""
    find = from_environment(environment)
    settings, arguments = with_values(assignment.settings, find), with_values(assignment.arguments, find)
    return replace(assignment, settings=settings, arguments=arguments)


def read_assignment_file(path: Path) -> Assignment | None:
    """Return the assignment in a file; None if there is no such file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        message = f"{path} is not JSON: {error}"
        raise BadValue(message) from error
    if not isinstance(content, dict):
        message = f"{path} is not a JSON object"
        raise BadValue(message)
    return read_assignment(content)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)
