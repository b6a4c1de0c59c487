"""`python -m penstock.driver.job_requests REQUEST`: what takes a job's code but no Spark, printed as JSON.

The file has `{"assignment": ..., "what": "sample" | "diverted" | "replay", ...}`. The answer is one JSON object on
standard output: `{"ok": true, ...}`, or `{"ok": false, "error": ...}`. What the user's code prints goes to standard
error. Values of secrets come by environment. The caller kills the process when it takes too long.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.driver.assignment import Assignment, read_assignment, with_secrets
from penstock.driver.diverted import diverted, replay_rejected
from penstock.driver.messages import describe_error
from penstock.driver.sampling import sample
from penstock.entry_points import load_entry
from penstock.errors import BadValue
from penstock.settings import Settings


def main(arguments: Sequence[str]) -> int:
    """Answer the request in a file."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    result = respond(json.loads(Path(arguments[0]).read_bytes()))
    json.dump(result, answer, allow_nan=False)
    answer.flush()
    return 0 if result["ok"] else 1


def respond(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request, or its error."""
    assignment = with_secrets(read_assignment(request["assignment"]), os.environ)
    try:
        return {"ok": True, **_answer(assignment, request)}
    except Exception as error:  # the user's code may raise anything
        secrets = [value for name, value in os.environ.items() if name.startswith("PENSTOCK_SECRET_")]
        return {"ok": False, "error": describe_error(error, secrets)}


def _answer(assignment: Assignment, request: Mapping[str, Any]) -> dict[str, Any]:
    settings = Settings.load(**assignment.settings)
    pipeline = load_entry(assignment.entry_point, assignment.sets)
    match request["what"]:
        case "sample":
            return sample(pipeline, settings, str(request["node"]), int(request["limit"]))
        case "diverted":
            return diverted(pipeline, settings, str(request["kind"]), int(request["limit"]))
        case "replay":
            return replay_rejected(pipeline, settings, assignment.checkpoint, request.get("limit"))
        case other:
            message = f"what = {other!r} is not known"
            raise BadValue(message)


if __name__ == "__main__":
    sys.stdout.flush()
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
