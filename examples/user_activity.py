"""Clicks and pages per user in the last five minutes, every minute.

penstock run examples/user_activity.py --until ended
"""

import penstock as ps


def activity(out: str = "activity", rows: int = 100_000) -> ps.Pipeline:
    """Count what each user does in overlapping windows, once per click even if it was sent twice."""
    clicks = ps.datagen("clicks", rows=rows, keys=50, seed=3).event_time("ts", max_delay="5s")
    active = (
        clicks.deduplicate(["user", "page", "ts"], within="1m")
        .key_by("user")
        .window(ps.sliding("5m", "1m"))
        .aggregate(clicks="count(*)", pages="approx_count_distinct(page)", last="max_by(page, ts)")
    )
    return ps.Pipeline("user-activity", active.to(ps.files(out)))
