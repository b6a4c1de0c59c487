"""The options of csv: header, delimiter, quote, escape, null text and encoding."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias

from penstock.errors import BadValue

Header: TypeAlias = Literal["auto", True, False]

UTF8 = "utf-8"
_WRITTEN_IN_NUMBERS = "+-."
_OPTIONS = ("header", "delimiter", "quote", "escape", "null")


@dataclass(frozen=True)
class CsvOptions:
    """The dialect of csv; `encoding` contains for json and text too.

    >>> CsvOptions(delimiter=";").given()
    {'delimiter': ';'}
    """

    header: Header = "auto"
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null: str = ""
    encoding: str = UTF8

    def __post_init__(self) -> None:
        """Refuse what cannot be read back."""
        if self.header not in ("auto", True, False):
            _refuse("header", self.header, 'pass True, False or "auto": a header if it names a declared column')
        if self.escape == self.quote:
            # As Spark's users write it: a quote in a quoted field is doubled, which is the default here.
            object.__setattr__(self, "escape", None)
        marks = {"delimiter": self.delimiter, "quote": self.quote or None, "escape": self.escape or None}
        for name, mark in marks.items():
            if mark is not None and (len(mark) != 1 or not mark.isascii() or mark in "\r\n\0"):
                _refuse(name, mark, "pass one ASCII character that is no line break")
        given = [mark for mark in marks.values() if mark is not None]
        for name in ("quote", "escape"):
            if marks[name] is not None and given.count(str(marks[name])) > 1:
                _refuse(name, marks[name], "delimiter, quote and escape must differ from each other")
        if any(mark in self.null for mark in (*given, "\r", "\n")):
            _refuse("null", self.null, "pass a text without delimiter, quote, escape and line breaks")
        object.__setattr__(self, "encoding", _codec(self.encoding))

    def given(self) -> dict[str, Any]:
        """Return the options that are not the default, as `CsvOptions(**given)` takes them."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> CsvOptions:
        """Return the options that the `spec()` of a source or sink has among its own entries."""
        return cls(**{field.name: spec[field.name] for field in fields(cls) if field.name in spec})

    def refuse_other_formats(self, format: str, what: str) -> None:
        """Raise BadValue if options of csv were given for another format."""
        wrong = [name for name in self.given() if name in _OPTIONS or format == "parquet"]
        if format != "csv" and wrong:
            message = f"{what}: {', '.join(f'{name}=' for name in wrong)} has no effect on {format}"
            raise BadValue(message, hint='leave it out, or pass format="csv"')

    def refuse_unwritable(self) -> None:
        """Raise BadValue for a dialect that the sink cannot write."""
        if self.delimiter.isalnum() or self.delimiter in _WRITTEN_IN_NUMBERS:
            _refuse("delimiter", self.delimiter, "numbers are written with it: choose another character")
        if not self.quote:
            _refuse("quote", self.quote, "a text that holds the delimiter could not be written")

    @cached_property
    def quote_byte(self) -> bytes:
        """The quote, empty if there is none."""
        return (self.quote or "").encode()

    @cached_property
    def escape_byte(self) -> bytes:
        """The escape character, empty if there is none."""
        return (self.escape or "").encode()

    @cached_property
    def field_pattern(self) -> bytes:
        """A field, quoted or not; text after the closing quote belongs to it, as Arrow's reader has it."""
        return rb"(?:%s%s|%s%s*)?" % (
            self.quoted_pattern,
            b"%s*" % self._plain(),
            self._plain(first=True),
            self._plain(),
        )

    @cached_property
    def quoted_pattern(self) -> bytes:
        """A quoted field; what cannot match if there are no quotes."""
        if not self.quote:
            return rb"(?!)"
        q, e = re.escape(self.quote_byte), re.escape(self.escape_byte)
        inside = rb"[^%s%s]|%s%s%s" % (q, e, q, q, rb"|%s[\s\S]" % e if e else b"")
        return rb"%s(?:%s)*+%s(?!%s)" % (q, inside, q, q)

    @cached_property
    def strict_pattern(self) -> bytes:
        """A field with nothing around its quotes, and none inside an unquoted one."""
        return rb"(?:%s|%s*+)" % (self.quoted_pattern, self._plain(first=True))

    def record_pattern(self, field: bytes, count: int | None = None) -> re.Pattern[bytes]:
        """Return the pattern of a whole row of such fields, of so many if that is known."""
        repeated = b"*" if count is None else b"{%d}" % (count - 1)
        return re.compile(rb"%s(?:%s%s)%s" % (field, re.escape(self.delimiter.encode()), field, repeated))

    def without_escapes(self, data: bytes) -> bytes:
        """Return bytes of the same length in which no escaped quote is left."""
        if not self.escape or self.escape_byte not in data:
            return data
        return re.sub(rb"%s[^\n]" % re.escape(self.escape_byte), b"  ", data)

    def _plain(self, *, first: bool = False) -> bytes:
        """Return the pattern of a character outside quotes; the first one of a field is no quote."""
        d, e = re.escape(self.delimiter.encode()), re.escape(self.escape_byte)
        q = re.escape(self.quote_byte) if first else b""
        return rb"(?:[^%s%s%s\r\n]%s)" % (d, q, e, rb"|%s[^\r\n]" % e if e else b"")


def _codec(name: str) -> str:
    try:
        found = codecs.lookup(name)
        is_text = isinstance(found.incrementaldecoder().decode(b""), str)
    except (LookupError, TypeError):
        is_text = False
    if not is_text:
        _refuse("encoding", name, 'pass a name that Python knows: "utf-8", "latin-1", "cp1252", "utf-16", ...')
    return found.name


def _refuse(option: str, value: object, hint: str) -> None:
    message = f"csv: {option}={value!r} cannot be used"
    raise BadValue(message, hint=hint)
