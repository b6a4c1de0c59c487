"""Submissions and updates as multipart requests."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.control.client.connection import Connection
from penstock.control.client.responses import json_of
from penstock.control.client.source import Source, read_source

# The job manager builds the plan before it answers, which may take half a minute.
SUBMIT_SECONDS = 120.0


def send_submission(http: Connection, file: str | Path, options: Mapping[str, Any]) -> Any:
    """Submit a job and return the response; the key makes it safe to send again when the response is lost."""
    source = read_source(file)
    headers = {"idempotency-key": uuid.uuid4().hex}
    return _send(http, "/jobs", source, options, headers=headers, repeatable=True)


def send_update(http: Connection, path: str, file: str | Path, options: Mapping[str, Any]) -> Any:
    """Send a new version of a job and return the response."""
    return _send(http, path, read_source(file), options)


def _send(http: Connection, path: str, source: Source, options: Mapping[str, Any], **how: Any) -> Any:
    fields = {name: _text(value) for name, value in {"entry": source.entry, **options}.items() if value is not None}
    files = {"file": (source.filename, source.content, source.media_type)}
    return json_of(http.request("POST", path, data=fields, files=files, timeout=SUBMIT_SECONDS, **how))


def _text(value: Any) -> str:
    """Return a field of a form: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
