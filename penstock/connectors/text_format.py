"""Plain text: each line is a row with the column `value`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import BadSchema
from penstock.schema import Schema


class TextDecoder:
    """Splits lines; an empty line is a row like any other."""

    def __init__(self, schema: Schema) -> None:
        if len(schema) != 1 or schema.fields[0].type != "string":
            message = f"text has one string column, not {schema.ddl!r}"
            raise BadSchema(message, hint='leave the schema out, or pass "value string"')
        self._arrow = schema.nullable().arrow

    def decode(self, data: bytes) -> pa.RecordBatch:
        """Return one row per line."""
        if not data:
            return pa.RecordBatch.from_pylist([], schema=self._arrow)
        text = pa.array([data.removesuffix(b"\n")], pa.binary()).cast(pa.string())
        values = pc.split_pattern(text, "\n").values
        if b"\r" in data:
            values = pc.replace_substring_regex(values, r"\r$", "")
        return pa.RecordBatch.from_arrays([values.cast(pa.string())], schema=self._arrow)

    def blank(self, line: bytes) -> bool:
        """Keep every line."""
        return False

    def bare(self, line: bytes) -> bytes:
        """Space is part of the text."""
        return line

    def screen(self, lines: Sequence[bytes]) -> dict[int, str]:
        """Find no line bad."""
        return {}

    def reason(self, line: bytes, error: Exception) -> str:
        """Say why a line is bad; only its encoding can be."""
        return str(error)
