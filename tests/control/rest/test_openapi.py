"""The schema is complete and true: schemathesis finds no 500 and no undocumented answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.control.machine.states import JobState
from penstock.control.rest.app import create_app
from penstock.control.rest.problems import SCHEMA_PATH
from tests.control.rest.memory_broker import MemoryBroker
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = int(os.environ.get("PENSTOCK_TEST_EXAMPLES", "6"))
THERE = {"job": "vwap", "topic": "orders", "group": "reports"}


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    paths = create_app(MemoryManager()).openapi()["paths"]
    return [(method, path, about) for path, each in paths.items() for method, about in each.items()]


@pytest.mark.parametrize(("method", "path", "about"), operations())
def test_an_operation_is_described(method: str, path: str, about: dict[str, Any]) -> None:
    assert about["operationId"]
    assert about["description"].endswith((".", "away."))
    responses = about["responses"]
    assert any(status.startswith("2") for status in responses)
    errors = {status: response for status, response in responses.items() if status >= "400"}
    assert {"500"} <= {*errors}
    assert all({*response["content"]} == {"application/problem+json"} for response in errors.values())
    if path.startswith("/api/"):
        assert {"401", "403", "422", "503"} <= {*errors}
        assert about["x-role"] in ("viewer", "operator", "admin")
    if "{job}" in path:
        assert "404" in errors


def test_operations_have_different_ids() -> None:
    names = [about["operationId"] for _, _, about in operations()]
    assert len(names) == len(set(names))


def test_the_schema_refers_to_nothing_that_is_missing() -> None:
    schema = create_app(MemoryManager()).openapi()
    known = schema["components"]["schemas"]
    assert set(references(schema)) <= {*known}
    assert "HTTPValidationError" not in known


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].rpartition("/")[2]
        for value in part.values():
            yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


@pytest.fixture(scope="module")
def schema() -> Iterator[Any]:
    manager = MemoryManager()
    manager.add("vwap"), manager.add("0", JobState.STOPPED)
    with serving(create_app(manager, broker=MemoryBroker())) as url:
        # Random tokens would only show that they are refused.
        config = schemathesis.Config.from_dict({"generation": {"with-security-parameters": False}})
        yield schemathesis.openapi.from_url(url + SCHEMA_PATH, config=config)


# An endless stream has no answer to compare.
NAMES = sorted({about["operationId"] for _, _, about in operations()} - {"stream_events", "stream_messages"})


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("name", NAMES)
def test_no_answer_is_a_500_or_undocumented(schema: Any, name: str, mode: GenerationMode) -> None:
    operation = schema.find_operation_by_id(name)
    # Right requests are about what there is, wrong ones about anything.
    there = {name: value for name, value in THERE.items() if f"{{{name}}}" in operation.path}
    known = {"path_parameters": there} if there and mode.is_positive else {}

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=HealthCheck)
    @given(operation.as_strategy(generation_mode=mode, **known))
    def answers(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS, timeout=10)

    with suppress(Unsatisfiable):  # an operation without parameters has no wrong ones
        answers()


@pytest.mark.parametrize(("name", "accepted"), [("create_job", 201), ("update_job", 202)])
def test_uploads_of_the_schema_are_accepted(schema: Any, name: str, accepted: int) -> None:
    """The part with the file has a name, so that right requests go past the check of the form."""
    operation = schema.find_operation_by_id(name)
    known = {"path_parameters": {"job": "vwap"}} if "{job}" in operation.path else {}
    statuses = []

    @settings(max_examples=10, deadline=None, derandomize=True, database=None, suppress_health_check=HealthCheck)
    @given(operation.as_strategy(generation_mode=GenerationMode.POSITIVE, **known))
    def answers(case: schemathesis.Case) -> None:
        statuses.append(case.call_and_validate(checks=CHECKS, timeout=10).status_code)

    answers()
    assert accepted in statuses
