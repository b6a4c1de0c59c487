"""Payloads to rows and back in Spark SQL, with the same meaning as `connectors/topics/payloads.py` in Python.

Spark's own `from_json` accepts what Penstock rejects: text after the document, duplicate keys, single quotes, numbers
for text. So each document is also parsed as a variant, which knows the type that every value was written in.
The variant must not end early: it is read in an array whose second element is a hash of the text itself.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.connectors.formats.epoch_times import RANGES
from penstock.connectors.formats.json.encodings import NON_FINITE
from penstock.contracts import REJECTED, ROW_KEY, Sink
from penstock.schema import Field, Schema, quoted
from penstock.spark.lowering.context import column, with_key
from penstock.spark.tasks.internal_columns import PREFIX
from penstock.spark.tasks.spark_types import EXACT_TIMES

REASON = PREFIX + "reason"
_VALUE, POSITION = PREFIX + "value", PREFIX + "position"
_TEXT, _PARSED, _ROW = PREFIX + "text", PREFIX + "parsed", PREFIX + "row"
_DATE = r"\d{4}-\d\d-\d\d"
_NAIVE = rf"{_DATE}([Tt ](\d\d|\d\d:\d\d|\d\d:\d\d:\d\d(\.\d+)?)"
_PATTERNS = {
    "timestamp": rf"^{_NAIVE}([Zz]|[+-]\d\d(:?\d\d)?)?)?$",
    "timestamp_ntz": f"^{_NAIVE})?$",
    "date": f"^{_DATE}$",
}
# What `from_json` is asked for: it would cut a number to a byte, and has a wider notion of times.
# Bytes must be strict base64; Spark's own reader skips invalid characters.
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\\z"
_WIRE = {**dict.fromkeys(("tinyint", "smallint", "int"), "bigint"), **dict.fromkeys((*_PATTERNS, "binary"), "string")}
_NUMBERS = "(BIGINT|DOUBLE|FLOAT|DECIMAL.*)"
_KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "BIGINT"),
    **dict.fromkeys(("float", "double", "timestamp"), f"(STRING|{_NUMBERS})"),
    "boolean": "BOOLEAN",
}
_WRITTEN = {"ignoreNullFields": "false", **EXACT_TIMES}


def rows(records: DataFrame, spec: dict[str, Any]) -> DataFrame:
    """Return a topic's records with the columns of its rows added, and in REASON why one is none."""
    position = F.concat(F.lit(f"{spec['name']}/"), "partition", F.lit("@"), "offset")
    included = [F.col(name).alias(f"_{name}") for name in spec["include"]]
    read = _json if spec["format"] == "json" else _raw
    return read(
        records.select(F.col("value").alias(_VALUE), position.alias(POSITION), *included), Schema(spec["schema"])
    )


def rejected(parsed: DataFrame, node: str) -> DataFrame:
    """Return the records that are no rows, in the schema that rejected rows have."""
    given = {"node": F.lit(node), "reason": column(REASON), "raw": F.coalesce(_VALUE, F.lit(b""))}
    given |= {"source": F.lit(node), "position": column(POSITION)}
    bad = parsed.filter(column(REASON).isNotNull())
    return bad.select(*(given.get(f.name, F.lit(None)).cast(f.type).alias(f.name) for f in REJECTED))


def records(rows: DataFrame, sink: Sink) -> DataFrame:
    """Return rows as records for a topic."""
    keyed = with_key(rows, sink)
    own = [column(name) for name in rows.columns]
    value = own[0].cast("binary") if (sink.spec() or {})["format"] == "raw" else F.to_json(F.struct(*own), _WRITTEN)
    key = [column(ROW_KEY).alias("key")] if sink.row_key is not None else []
    return keyed.select(*key, value.alias("value"))


def _json(records: DataFrame, schema: Schema) -> DataFrame:
    wire = ", ".join(f"{quoted(field.name)} {_WIRE.get(field.type, field.type)}" for field in schema)
    whole = F.concat(F.lit("["), _TEXT, F.lit(","), F.xxhash64(_TEXT).cast("string"), F.lit("]"))
    texts = records.withColumn(_TEXT, _text())
    parsed = texts.withColumns({_PARSED: F.try_parse_json(whole), _ROW: F.from_json(_TEXT, wire)})
    values = {f.name: _typed(column(_ROW)[f.name], f, _kind(f)) for f in schema}
    return parsed.withColumns(values | {REASON: _why_not_json(schema, values)})


def _text() -> Column:
    return F.try_validate_utf8(F.col(_VALUE).cast("string"))


def _typed(value: Column, field: Field, kind: Column) -> Column:
    if field.type in ("float", "double"):
        word = F.try_variant_get(_given(field), "$", "string").isin(*NON_FINITE)
        return F.when(kind == "STRING", F.when(word, value)).when(F.abs(value) != float("inf"), value)
    if field.type == "binary":
        return F.when(value.rlike(_BASE64), F.unbase64(value))
    if field.type not in _PATTERNS:
        return value.try_cast(field.type) if field.type in _WIRE else value
    text = F.when(value.rlike(_PATTERNS[field.type]), _with_seconds(F.upper(value)).try_cast(field.type))
    return F.when(kind == "STRING", text).otherwise(_counted(_given(field))) if field.type == "timestamp" else text


def _counted(number: Column) -> Column:
    """Return a number as a time, in the unit that its size implies, as in `epoch_times`."""
    # Not by `from_json`, which reads a number as a double before it is text.
    exact = F.try_variant_get(number, "$", "decimal(38,18)")
    found = F.when(exact == 0, F.lit(0).cast("bigint"))
    for first, end, times, per in RANGES:
        whole = exact.try_cast(f"decimal({36 - len(str(times))},18)") * F.lit(times)
        counted = whole if per == 1 else F.floor(exact).cast("decimal(20,0)") * F.lit(Decimal(1) / per)
        inside = (F.abs(exact) >= F.lit(Decimal(first))) & (F.abs(exact) < F.lit(Decimal(end)))
        found = found.when(inside, F.floor(counted).cast("bigint"))
    return F.timestamp_micros(found)


def _with_seconds(time: Column) -> Column:
    """Add seconds: Spark takes a zone only after them."""
    with_minutes = F.regexp_replace(time, "^(.{13})(Z|[+-])", "$1:00$2")
    return F.regexp_replace(with_minutes, "^(.{16})(Z|[+-])", "$1:00$2")


def _why_not_json(schema: Schema, values: dict[str, Column]) -> Column:
    whole = F.coalesce(F.try_variant_get(_PARSED, "$[1]", "bigint") == F.xxhash64(_TEXT), F.lit(False))
    is_object = F.schema_of_variant(_at("$[0]")).startswith("OBJECT")
    why = F.when(F.isnull(_VALUE), "no payload: a tombstone").when(F.isnull(_TEXT), "not JSON: not UTF-8")
    why = why.when(~whole, "not JSON: it does not parse as one document").when(~is_object, "not a JSON object")
    for field in schema:
        given, kind = _given(field), _kind(field)
        misfit = ~kind.rlike(f"^({_KINDS.get(field.type, 'STRING')})$") | values[field.name].isNull()
        shown = F.concat(
            F.lit(f"column {field.name}: "), F.to_json(given).substr(1, 200), F.lit(f" cannot be read as {field.type}")
        )
        why = why.when((kind != "VOID") & misfit, shown)
    return _not_null(why, schema, values)


def _not_null(why: Column, schema: Schema, values: dict[str, Column]) -> Column:
    for field in schema:
        if not field.nullable:
            why = why.when(values[field.name].isNull(), f"column {field.name}: null, but it is declared not null")
    return why


def _kind(field: Field) -> Column:
    return F.schema_of_variant(_given(field))


def _given(field: Field) -> Column:
    return _at(f"$[0]['{field.name}']")


def _at(path: str) -> Column:
    return F.variant_get(_PARSED, path, "variant")


def _raw(records: DataFrame, schema: Schema) -> DataFrame:
    (field,) = schema
    value = column(_VALUE) if field.type == "binary" else _text()
    why = F.when(column(_VALUE).isNotNull() & value.isNull(), "not UTF-8")
    return records.withColumns({field.name: value, REASON: _not_null(why, schema, {field.name: value})})
