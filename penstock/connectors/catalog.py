"""The catalog of connectors that a plan in JSON can refer to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.source import FileSource
from penstock.connectors.files.stdin import StdinSource
from penstock.connectors.generators.datagen import DataGen
from penstock.connectors.generators.items import ItemSource
from penstock.connectors.sinks.console import ConsoleSink
from penstock.contracts import Sink, Source
from penstock.errors import BadValue, choices
from penstock.masking import refuse_masked


class _SourceKind(Protocol):
    def from_spec(self, spec: dict[str, Any]) -> Source: ...


class _SinkKind(Protocol):
    def from_spec(self, spec: dict[str, Any]) -> Sink: ...


class _Later:
    """A connector that is imported on demand: few pipelines need its client library."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def from_spec(self, spec: dict[str, Any]) -> Any:
        kind = getattr(import_module(f"penstock.connectors.{self._module}"), self._name)
        return kind.from_spec(spec)


class _Tables:
    """Tables that streams are joined with."""

    def from_spec(self, spec: dict[str, Any]) -> Source:
        from penstock.connectors.tables.source import table_from_spec

        return table_from_spec(spec)


SOURCES: dict[str, _SourceKind] = {
    "datagen": DataGen,
    "files": FileSource,
    "items": ItemSource,
    "read_table": _Tables(),
    "stdin": StdinSource,
    "topic": _Later("topics.source", "TopicSource"),
    "view_topic": _Later("topics.views", "ViewTopicSource"),
}
# `collect` and `callback` hold Python objects of their process, so they have no JSON description.
SINKS: dict[str, _SinkKind] = {
    "console": ConsoleSink,
    "files": FileSink,
    "table": _Later("tables.sink", "TableSink"),
    "topic": _Later("topics.sink", "TopicSink"),
    "webhook": _Later("sinks.webhook", "WebhookSink"),
    "whole_view": _Later("files.whole_view", "WholeViewSink"),
}


def source_from_spec(spec: dict[str, Any]) -> Source:
    """Rebuild a source from its `spec()`; raises if a secret was left out."""
    refuse_masked(spec, "source")
    return SOURCES[_kind(spec, SOURCES, "source")].from_spec(spec)


def sink_from_spec(spec: dict[str, Any]) -> Sink:
    """Rebuild a sink from its `spec()`; raises if a secret was left out."""
    refuse_masked(spec, "sink")
    return SINKS[_kind(spec, SINKS, "sink")].from_spec(spec)


def _kind(spec: Mapping[str, Any], known: Mapping[str, object], what: str) -> str:
    kind = str(spec.get("kind"))
    if kind not in known:
        message = f"{kind!r} is not a kind of {what}"
        raise BadValue(message, hint=choices(f"kinds of {what}", known, kind))
    return kind
