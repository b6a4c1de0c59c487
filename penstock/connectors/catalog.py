"""The connectors that a plan in JSON can name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from penstock.connectors.console import ConsoleSink
from penstock.connectors.datagen import DataGen
from penstock.connectors.file_sink import FileSink
from penstock.connectors.files import FileSource
from penstock.connectors.items import ItemSource
from penstock.connectors.stdin import StdinSource
from penstock.contracts import Sink, Source
from penstock.errors import BadValue, choices
from penstock.masking import refuse_masked


class _SourceKind(Protocol):
    def from_spec(self, spec: dict[str, Any]) -> Source: ...


class _SinkKind(Protocol):
    def from_spec(self, spec: dict[str, Any]) -> Sink: ...


class _Later:
    """A kind that is loaded when a plan names it: few pipelines need its client library."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def from_spec(self, spec: dict[str, Any]) -> Any:
        kind = getattr(import_module(f"penstock.connectors.{self._module}"), self._name)
        return kind.from_spec(spec)


class _Tables:
    """Tables that streams are joined with."""

    def from_spec(self, spec: dict[str, Any]) -> Source:
        from penstock.connectors.tables.reading import table_from_spec

        return table_from_spec(spec)


SOURCES: dict[str, _SourceKind] = {
    "datagen": DataGen,
    "files": FileSource,
    "items": ItemSource,
    "read_table": _Tables(),
    "stdin": StdinSource,
    "topic": _Later("topics", "TopicSource"),
}
# `collect` and `callback` hold Python of their process, so no JSON leads to them.
SINKS: dict[str, _SinkKind] = {
    "console": ConsoleSink,
    "files": FileSink,
    "table": _Later("tables.table_sink", "TableSink"),
    "topic": _Later("topic_sink", "TopicSink"),
    "webhook": _Later("webhook", "WebhookSink"),
}


def source_from_spec(spec: dict[str, Any]) -> Source:
    """Rebuild a source from its `spec()`; one that a secret was left out of is refused."""
    refuse_masked(spec, "source")
    return SOURCES[_kind(spec, SOURCES, "source")].from_spec(spec)


def sink_from_spec(spec: dict[str, Any]) -> Sink:
    """Rebuild a sink from its `spec()`; one that a secret was left out of is refused."""
    refuse_masked(spec, "sink")
    return SINKS[_kind(spec, SINKS, "sink")].from_spec(spec)


def _kind(spec: Mapping[str, Any], known: Mapping[str, object], what: str) -> str:
    kind = str(spec.get("kind"))
    if kind not in known:
        message = f"{kind!r} is no kind of {what}"
        raise BadValue(message, hint=choices(f"kinds of {what}", known, kind))
    return kind
