"""Uploads: forms with the source of a job, as multipart/form-data. Objects in them are JSON texts."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import Form, UploadFile
from pydantic import Field, Json

from penstock.control.api.fields import Object, Request, Text
from penstock.control.api.jobs import Submission, Until, Update
from penstock.control.rest.manager import IdempotencyKey, Source
from penstock.errors import BadEntry

_SUFFIXES = (".py", ".sql", ".zip")
_LONGEST_NAME = 200
_Settings = Annotated[Json[Object], Field(description="settings of the job, a JSON object as text", examples=["{}"])]
_Arguments = Annotated[
    Json[Object],
    Field(description="arguments of the entry, a JSON object as text", examples=['{"window": "30s"}']),
]
# A text that is JSON counts as such.
_Policy = Annotated[Json[Object] | Text, Field(union_mode="left_to_right")]


class _Upload(Request):
    file: UploadFile = Field(description="NAME.py, NAME.sql, or a zip of a folder")
    entry: Text | None = Field(default=None, description="pipeline of the source: `name`, or `FILE.py:name` of a zip")

    def source(self) -> Source:
        """Return the uploaded file; raise BadEntry for one that is neither Python, SQL nor a zip."""
        name = PurePosixPath((self.file.filename or "").replace("\\", "/")).name
        plain = name.isprintable() and len(name) <= _LONGEST_NAME
        if not (plain and name.endswith(_SUFFIXES) and name not in _SUFFIXES):
            message = f"file: {name[:_LONGEST_NAME]!r} is not the name of a Python file, an SQL file or a zip"
            raise BadEntry(message, hint='upload NAME.py, NAME.sql, or NAME.zip of a folder, as in -F "file=@vwap.py"')
        return Source(name, self.file.file.read())

    def _options(self) -> dict[str, Any]:
        return {name: value for name, value in self if name != "file"}


class PlanForm(_Upload):
    """A pipeline whose plan is wanted; nothing is stored."""

    settings: _Settings = {}
    arguments: _Arguments = {}

    def submission(self) -> Submission:
        """Return the form without the file."""
        return Submission(**self._options())


class SubmissionForm(_Upload):
    """A new job: its source, and what to run of it and how."""

    name: Text | None = Field(default=None, description="name of the job; the pipeline's by default")
    settings: _Settings = {}
    arguments: _Arguments = {}
    until: Until = "stopped"
    parallelism: int | None = Field(default=None, ge=1, le=10_000)
    restart_policy: _Policy | None = Field(default=None, description="JSON, or fixed_delay:delay=5s,attempts=3")
    autoscaling: _Policy | None = Field(default=None, description="policy of the autoscaler, JSON")
    pool: Text | None = Field(default=None, description="jobs of one pool share a driver")
    memory: Text | None = Field(default=None, description="memory of the driver, such as 2g")
    cores: float | None = Field(default=None, gt=0, le=10_000)

    def submission(self) -> Submission:
        """Return the form without the file."""
        return Submission(**self._options())


class UpdateForm(_Upload):
    """A new version of a job; what is not given stays as it is."""

    settings: Json[Object] | None = Field(default=None, description="settings of the job, a JSON object as text")
    arguments: Json[Object] | None = Field(default=None, description="arguments of the entry, a JSON object as text")
    allow_drop: bool = Field(default=False, description="allow the new version to lose state of the old one")

    def update(self) -> Update:
        """Return the form without the file."""
        return Update(**self._options())


MultipartSubmission = Annotated[SubmissionForm, Form(media_type="multipart/form-data")]
MultipartPlan = Annotated[PlanForm, Form(media_type="multipart/form-data")]
MultipartUpdate = Annotated[UpdateForm, Form(media_type="multipart/form-data")]


def idempotency_key(key: str | None, submission: Submission, source: Source) -> IdempotencyKey | None:
    """Return the key of a request with a digest of all that it asks for."""
    if key is None:
        return None
    digest = hashlib.sha256(json.dumps([submission.model_dump(), source.filename], sort_keys=True).encode())
    digest.update(source.content)
    return IdempotencyKey(key, digest.hexdigest())
