"""Bytes in JSON are base64, in files and topics, at any depth; what is not base64 is rejected."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

from penstock.connectors.formats.json.layout import FEW
from penstock.connectors.formats.parsers import parser
from penstock.connectors.formats.writers import JsonFile
from penstock.connectors.topics.payloads import check_row_format, payloads
from penstock.contracts import Rejected
from penstock.schema import Schema
from tests.schemas import batches

BYTES = Schema("b binary")


def parsed(schema: Schema, data: bytes) -> list[object]:
    return list(parser("json", schema).parse(data, "f.json"))


@given(batches(maps=False))
@settings(deadline=None, max_examples=80)
def test_rows_that_are_written_as_json_are_read_as_they_were(given: tuple[Schema, pa.RecordBatch]) -> None:
    schema, rows = given
    check_row_format("t", "json", schema)
    lines = "".join(f"{line}\n" for line in payloads(rows, "json")).encode()
    (found,) = parsed(schema, lines)
    assert isinstance(found, pa.RecordBatch)
    assert [repr(row) for row in found.to_pylist()] == [repr(row) for row in rows.to_pylist()]


def test_a_block_of_lines_of_one_layout_is_decoded_too(tmp_path: Path) -> None:
    rows = pa.record_batch({"b": pa.array([bytes([n % 256]) * (n % 5) for n in range(FEW)], pa.binary())})
    file = JsonFile(str(tmp_path / "rows.json"))
    file.write_batch(rows)
    file.close()
    (found,) = parsed(BYTES, (tmp_path / "rows.json").read_bytes())
    assert found == rows


@pytest.mark.parametrize("text", ["YWI", "YW I=", "YWI=YWI=", "_-8=", "=", "é", "YWI=\n"])
@pytest.mark.parametrize("schema", [BYTES, Schema("b array<struct<x:binary>>")], ids=["plain", "nested"])
def test_text_that_is_not_base64_is_rejected_with_the_column(text: str, schema: Schema) -> None:
    value = text if schema is BYTES else [{"x": "YWI="}, {"x": text}, None]
    good = "YWI=" if schema is BYTES else [{"x": "YWI="}]
    data = io.BytesIO()
    for each in (good, value, good):
        data.write(json.dumps({"b": each}).encode() + b"\n")
    bad, rows = parsed(schema, data.getvalue())
    assert isinstance(bad, Rejected)
    assert bad.reason.startswith("column b: ")
    assert bad.reason.endswith(f"cannot be read as {schema.fields[0].type}")
    assert isinstance(rows, pa.RecordBatch)
    assert rows.num_rows == 2
