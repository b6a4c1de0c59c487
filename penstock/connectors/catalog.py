"""The connectors that a plan in JSON can name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from penstock.connectors.console import ConsoleSink
from penstock.connectors.datagen import DataGen
from penstock.connectors.file_sink import FileSink
from penstock.connectors.files import FileSource
from penstock.connectors.items import ItemSource
from penstock.connectors.stdin import StdinSource
from penstock.contracts import Sink, Source
from penstock.errors import BadValue, choices


class _SourceKind(Protocol):
    def from_spec(self, spec: dict[str, Any]) -> Source: ...


class _SinkKind(Protocol):
    def from_spec(self, spec: dict[str, Any]) -> Sink: ...


SOURCES: dict[str, _SourceKind] = {
    "datagen": DataGen,
    "files": FileSource,
    "items": ItemSource,
    "stdin": StdinSource,
}
# `collect` and `callback` hold Python of their process, so no JSON leads to them.
SINKS: dict[str, _SinkKind] = {
    "console": ConsoleSink,
    "files": FileSink,
}


def source_from_spec(spec: dict[str, Any]) -> Source:
    """Rebuild a source from its `spec()`."""
    return SOURCES[_kind(spec, SOURCES, "source")].from_spec(spec)


def sink_from_spec(spec: dict[str, Any]) -> Sink:
    """Rebuild a sink from its `spec()`."""
    return SINKS[_kind(spec, SINKS, "sink")].from_spec(spec)


def _kind(spec: Mapping[str, Any], known: Mapping[str, object], what: str) -> str:
    kind = str(spec.get("kind"))
    if kind not in known:
        message = f"{kind!r} is no kind of {what}"
        raise BadValue(message, hint=choices(f"kinds of {what}", known, kind))
    return kind
