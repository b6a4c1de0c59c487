"""Columns as JSON text, at any depth: maps are objects, bytes base64, times ISO-8601."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.formats.text_columns import decimal_text, iso

_ESCAPED = r'["\\\x00-\x1f]'


def json_documents(batch: pa.RecordBatch, end: str = "}") -> pa.Array:
    """Return each row as a JSON document."""
    return _object(batch.schema.names, [json_text(column) for column in batch.columns], end)


def json_text(column: pa.Array, *, nested: bool = False) -> pa.Array:
    """Return each value as JSON text; a decimal inside another value is in quotes, which no reader rounds."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [json_text(column.field(n), nested=True) for n in range(kind.num_fields)]
        text = _object([part.name for part in kind], fields) if fields else pa.array(["{}"] * len(column))
    elif pa.types.is_map(kind):
        pairs = pc.binary_join_element_wise(_key(column.keys), json_text(column.items, nested=True), ": ")
        text = _joined(column, pairs, "{", "}")
    elif pa.types.is_list(kind):
        text = _joined(column, json_text(column.values, nested=True), "[", "]")
    elif nested and pa.types.is_decimal(kind):
        text = _quoted(decimal_text(column))
    else:
        text = _plain(column)
    return pc.fill_null(_masked(text, column), "null")


def _plain(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind):
        return _quoted(_unquoted(column))
    if not pa.types.is_floating(kind):
        return _unquoted(column)
    return pc.if_else(pc.is_finite(column), column.cast(pa.string()), _quoted(_unquoted(column)))


def _key(keys: pa.Array) -> pa.Array:
    """Return the keys of a map, which are texts in JSON, as Spark writes them."""
    return _quoted(json_text(keys, nested=True) if pa.types.is_nested(keys.type) else _unquoted(keys))


def _unquoted(column: pa.Array) -> pa.Array:
    """Return plain values as text, before it is JSON."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return iso(column)
    if pa.types.is_decimal(kind):
        return decimal_text(column)
    if pa.types.is_binary(kind):
        return pa.array(
            [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()], pa.string()
        )
    text = column.cast(pa.string())
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is False:
        text = pc.if_else(pc.is_nan(column), "NaN", text)
        text = pc.if_else(pc.is_inf(column), pc.if_else(pc.less(column, 0), "-Infinity", "Infinity"), text)
    return text


def _quoted(text: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
        found = [value if value is None else json.dumps(value, ensure_ascii=False) for value in text.to_pylist()]
        return pa.array(found, pa.string())
    return pc.binary_join_element_wise('"', text, '"', "")


def _object(names: list[str], values: list[pa.Array], end: str = "}") -> pa.Array:
    parts: list[pa.Array | str] = []
    for name, value in zip(names, values, strict=True):
        parts += [f"{', ' if parts else '{'}{json.dumps(name, ensure_ascii=False)}: ", value]
    return pc.binary_join_element_wise(*parts, end, "")


def _joined(column: pa.Array, parts: pa.Array, before: str, after: str) -> pa.Array:
    """Return the parts of each list with commas between them."""
    lists = pa.ListArray.from_arrays(column.offsets, parts)
    return pc.binary_join_element_wise(before, pc.binary_join(lists, ", "), after, "")


def _masked(text: pa.Array, column: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), text, None) if column.null_count else text
