"""Plain text: each line is a row with the column `value`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.csv.records import Record
from penstock.errors import BadSchema
from penstock.schema import Schema


class LineDecoder:
    """The common part of formats with one row per line."""

    def decode(self, data: bytes) -> pa.RecordBatch:
        """Return one row per line."""
        raise NotImplementedError

    def decode_lines(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Return one row per line."""
        # Each with its line feed: otherwise an empty last line would be lost.
        return self.decode(b"".join(line + b"\n" for line in lines))

    def records(self, block: bytes) -> list[Record]:
        """No row takes several lines."""
        return []

    def several_lines(self, text: bytes) -> bool:
        """No row takes several lines."""
        return False


class TextDecoder(LineDecoder):
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
        """Return why a line is bad; only its encoding can be."""
        return str(error)
