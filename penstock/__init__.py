"""Penstock: a streaming platform for Python teams, on Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import state as state
    from penstock.aggregates import Aggregator as Aggregator
    from penstock.contracts import Epoch as Epoch
    from penstock.contracts import Rejected as Rejected
    from penstock.contracts import Sink as Sink
    from penstock.contracts import Source as Source
    from penstock.control.client import Client as Client
    from penstock.errors import CheckpointError as CheckpointError
    from penstock.errors import PenstockError as PenstockError
    from penstock.errors import PipelineError as PipelineError
    from penstock.errors import RunError as RunError
    from penstock.errors import SettingsError as SettingsError
    from penstock.flows import Output as Output
    from penstock.incremental.graph.graph import Graph as Graph
    from penstock.pipeline import Pipeline as Pipeline
    from penstock.process import Context as Context
    from penstock.process import Process as Process
    from penstock.process import Timer as Timer
    from penstock.report import Counts as Counts
    from penstock.report import Progress as Progress
    from penstock.report import Report as Report
    from penstock.schema import Schema as Schema
    from penstock.settings import Settings as Settings
    from penstock.sinks import callback as callback
    from penstock.sinks import collect as collect
    from penstock.sinks import console as console
    from penstock.sinks import files as files
    from penstock.sinks import table as table
    from penstock.sinks import topic as topic
    from penstock.sinks import webhook as webhook
    from penstock.sources import datagen as datagen
    from penstock.sources import from_items as from_items
    from penstock.sources import read as read
    from penstock.sources import read_files as read_files
    from penstock.sources import read_stdin as read_stdin
    from penstock.sources import read_topic as read_topic
    from penstock.sources import read_view as read_view
    from penstock.sql import sql as sql
    from penstock.sql_views import sql_view as sql_view
    from penstock.stream import GroupedView as GroupedView
    from penstock.stream import KeyedStream as KeyedStream
    from penstock.stream import Stream as Stream
    from penstock.stream import View as View
    from penstock.stream import WindowedStream as WindowedStream
    from penstock.tables import Table as Table
    from penstock.tables import read_table as read_table
    from penstock.windows import Window as Window
    from penstock.windows import count_window as count_window
    from penstock.windows import global_window as global_window
    from penstock.windows import session as session
    from penstock.windows import sliding as sliding
    from penstock.windows import tumbling as tumbling

__version__ = "0.1.0"

# Names are loaded when they are first used: Spark's workers import this package too, and need little of it.
_HOMES = {
    "aggregates": ("Aggregator",),
    "contracts": ("Epoch", "Rejected", "Sink", "Source"),
    "control.client": ("Client",),
    "errors": ("CheckpointError", "PenstockError", "PipelineError", "RunError", "SettingsError"),
    "incremental.graph.graph": ("Graph",),
    "sources": ("datagen", "from_items", "read", "read_files", "read_stdin", "read_topic", "read_view"),
    "sinks": ("callback", "collect", "console", "files", "table", "topic", "webhook"),
    "flows": ("Output",),
    "pipeline": ("Pipeline",),
    "process": ("Context", "Process", "Timer"),
    "report": ("Counts", "Progress", "Report"),
    "schema": ("Schema",),
    "settings": ("Settings",),
    "sql": ("sql",),
    "sql_views": ("sql_view",),
    "stream": ("GroupedView", "KeyedStream", "Stream", "View", "WindowedStream"),
    "tables": ("Table", "read_table"),
    "windows": ("Window", "count_window", "global_window", "session", "sliding", "tumbling"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

_MODULES = ("state",)

__all__ = sorted([*_HOME_OF, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"penstock.{name}")
    if name not in _HOME_OF:
        message = f"module 'penstock' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"penstock.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
