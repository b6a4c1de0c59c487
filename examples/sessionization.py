"""Sessions of users: clicks that follow one another by less than a gap, and the path they took.

penstock run examples/sessionization.py --until ended
"""

from typing import Any

import penstock as ps


class Path(ps.Aggregator):
    """The pages of a session in the order of their clicks, at most ten."""

    state = "pages array<string>"
    result = "array<string>"

    def start(self) -> dict[str, Any]:
        """No page yet."""
        return {"pages": []}

    def add(self, acc: dict[str, Any], *values: Any) -> dict[str, Any]:
        """One click more."""
        return {"pages": [*acc["pages"], values[0]][:10]}

    def merge(self, a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        """Two parts of a session, the earlier one first."""
        return {"pages": (a["pages"] + b["pages"])[:10]}

    def finish(self, acc: dict[str, Any]) -> list[str]:
        """The path itself."""
        return acc["pages"]


def sessions(out: str = "sessions", gap: str = "10s", rows: int = 20_000) -> ps.Pipeline:
    """Cut each user's clicks into sessions."""
    clicks = ps.datagen("clicks", rows=rows, keys=2000, seed=5).event_time("ts", max_delay="5s")
    found = clicks.key_by("user").window(ps.session(gap)).aggregate(clicks="count(*)", path=Path("page"))
    return ps.Pipeline("sessions", found.to(ps.files(out, format="json")))
