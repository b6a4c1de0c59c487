"""Answers to queries, which are lines of JSON."""

from __future__ import annotations

import json
from typing import Any

from penstock.control.api.problems import Problem
from penstock.control.client.problems import error_of_problem


def rows_in(answer: str) -> list[dict[str, Any]]:
    r"""Return the rows of an answer; raise the error that ended it.

    >>> rows_in('{"columns": []}\n{"rows": [{"n": 1}]}\n{"done": true, "rows": 1}')
    [{'n': 1}]
    """
    lines = [json.loads(line) for line in answer.split("\n") if line]
    for line in lines:
        if "problem" in line:
            raise error_of_problem(Problem.model_validate(line["problem"]))
    return [row for line in lines if not line.get("done") for row in line.get("rows", ())]
