"""Server-sent events as models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.control.api.events import Event


def events_in(lines: Iterable[str]) -> Iterator[Event]:
    """Return the events of a stream; comments, which keep the connection open, are skipped.

    >>> lines = [": ping", "", 'data: {"seq": 1, "at": "2026-01-01T00:00:00Z",', 'data: "kind": "state"}', ""]
    >>> [event.kind for event in events_in(lines)]
    ['state']
    """
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            yield Event.model_validate_json("\n".join(data))
            data = []
