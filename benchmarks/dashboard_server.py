"""A job manager over a store with many jobs, whose events are made up: `python -m benchmarks.dashboard_server DIR`.

The server, its store, its API and its WebSocket are the real ones; only the drivers are missing. The jobs are such as
have ended, so that the manager starts nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.control_store import fill
from penstock.control import server
from penstock.control.store.repositories.nodes import NodeFigures
from penstock.control.store.repositories.versions import Version
from penstock.control.store.rollup import Sample
from penstock.control.store.store import Store
from penstock.control.supervisor.event_bus import EventBus
from penstock.dashboard import create_dashboard

LARGE = "large"
_CHAINS = 40
_KINDS = ("filter", "map", "event_time", "aggregate")
_random = random.Random(11)


def fill_store(data: Path, jobs: int, nodes: int) -> None:
    """Store jobs with ten minutes of samples; the first one has a plan of so many nodes, and the name `large`."""
    ids = fill(data, jobs, jobs * 100)
    with Store(f"sqlite:///{data / 'penstock.db'}") as store, store.begin() as write:
        write.series.record(_samples(ids, time.time()))
        write.versions.add(Version(job=ids[0], number=2, entry="job.py", digest="1" * 64, plan=plan(nodes)))
        write.jobs.update(ids[0], name=LARGE, version=2)
        write.nodes.put([NodeFigures(job=ids[0], epoch=99, at=time.time(), nodes=node_figures(nodes, 1))])


def _samples(ids: list[str], now: float) -> Iterator[Sample]:
    for job in ids:
        level = _random.uniform(50, 5_000)
        for step in range(60):
            yield Sample(job, "rows_per_second", now - 10 * step, level * _random.uniform(0.7, 1.3))


def plan(nodes: int) -> dict[str, Any]:
    """Return a plan of chains that are joined here and there, from sources to sinks."""
    return {"nodes": [_node(number, nodes) for number in range(nodes)]}


def _node(number: int, nodes: int) -> dict[str, Any]:
    chain, place = number % _CHAINS, number // _CHAINS
    is_last = number + _CHAINS >= nodes
    kind = "read" if place == 0 else "write" if is_last else "join" if number % 7 == 0 else _KINDS[place % len(_KINDS)]
    inputs = [] if place == 0 else [f"n{number - _CHAINS}"]
    if kind == "join" and chain:
        inputs.append(f"n{number - _CHAINS - 1}")
    state = {"store": "spark", "bounded": True} if kind in ("aggregate", "join") else None
    lane = "spark" if kind in ("read", "write", "join") else "native"
    return {
        "id": f"n{number}",
        "name": f"{kind}-{chain}-{place}",
        "kind": kind,
        "title": f"{kind} '{kind}-{chain}-{place}'",
        "detail": "amount > 0",
        "inputs": inputs,
        "columns": {"k": "string", "amount": "double"},
        "lane": lane,
        "state": state,
    }


def node_figures(nodes: int, epoch: int) -> dict[str, Any]:
    """Return made-up figures of all nodes after an epoch."""
    return {each["name"]: _figures(each, epoch) for each in plan(nodes)["nodes"]}


def _figures(node: dict[str, Any], epoch: int) -> dict[str, Any]:
    rows = epoch * 1_000 + _random.randrange(900)
    zero = dict.fromkeys(("late", "rejected", "duplicate", "dropped"), 0)
    state = {"state_rows": _random.randrange(10_000), "state_bytes": _random.randrange(10**7)} if node["state"] else {}
    return {
        "in": rows,
        "used": rows - 10,
        "filtered": 10,
        **zero,
        **state,
        "rate": _random.uniform(100, 9_000),
        "backpressure": _random.choice((0.0, 0.0, 0.0, 0.2, 0.7)),
    }


class _BusyBus(EventBus):
    """Publishes so many epochs a second, of all jobs in turn, and four a second with all nodes of the large one."""

    jobs: tuple[str, ...] = ()
    large = ""
    rate = 0.0
    nodes = 0

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        super().bind(loop)
        self._tasks = [loop.create_task(self._publish_all()), loop.create_task(self._publish_large())]

    async def _publish_all(self) -> None:
        for number in itertools.count(100):
            await asyncio.sleep(1 / self.rate)
            self.publish("epoch", self.jobs[number % len(self.jobs)], **_epoch(number))

    async def _publish_large(self) -> None:
        for number in itertools.count(100):
            await asyncio.sleep(0.25)
            if any(each.job == self.large for each in self._subscribers):
                detail = {"nodes": node_figures(self.nodes, number)}
                self.publish("epoch", self.large, detail=detail, **_epoch(number))


def _epoch(number: int) -> dict[str, Any]:
    return {
        "epoch": number,
        "rows_in": _random.randrange(5_000),
        "rows_out": _random.randrange(500),
        "late": 0,
        "rejected": 0,
        "rows_in_per_s": _random.uniform(100, 9_000),
        "duration_ms": _random.uniform(80, 400),
        "watermark": None,
        "lag": _random.randrange(2_000),
    }


def main(data: str, jobs: str = "100", nodes: str = "1000", rate: str = "50") -> None:
    """Fill a store and serve it until the process is ended."""
    folder = Path(data)
    folder.mkdir(parents=True, exist_ok=True)
    fill_store(folder, int(jobs), int(nodes))
    with Store(f"sqlite:///{folder / 'penstock.db'}") as store:
        found = [job.id for job in store.jobs.page(limit=int(jobs)).items]
        _BusyBus.large = store.jobs.get(LARGE).id
    _BusyBus.jobs, _BusyBus.rate, _BusyBus.nodes = tuple(found), float(rate), int(nodes)
    server.EventBus = _BusyBus  # type: ignore[misc]
    server.run_server(data=folder, port=0, spares=0, dashboard=create_dashboard())


if __name__ == "__main__":
    main(*sys.argv[1:])
