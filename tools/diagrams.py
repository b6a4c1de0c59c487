"""Draw the diagrams of the documentation as SVG: `python tools/diagrams.py` writes docs/images/*.svg.

They are drawn here and not by a library of the browser, so that the site works offline and on any viewer of Markdown.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLOURS = {
    "plain": ("#f7f7fb", "#5c6bc0"),
    "penstock": ("#e8eaf6", "#3949ab"),
    "spark": ("#fff3e0", "#ef6c00"),
    "store": ("#e8f5e9", "#2e7d32"),
    "bad": ("#fce4ec", "#c2185b"),
}
CHAR = 6.2
LINE = 16


class Drawing:
    """A canvas of boxes, arrows and labels; a text that does not fit its box is an error."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def box(self, x: int, y: int, w: int, h: int, title: str, *lines: str, kind: str = "plain") -> None:
        """Draw a box with a bold first line, centred."""
        fill, stroke = COLOURS[kind]
        self._rect(x, y, w, h, f'rx="6" fill="{fill}" stroke="{stroke}" stroke-width="1.4"')
        top = y + h / 2 - (len(lines) * LINE) / 2 + 4
        for number, text in enumerate((title, *lines)):
            if len(text) * CHAR > w - 8 or (len(lines) + 1) * LINE > h:
                message = f"{self.title}: {text!r} does not fit in a box of {w} x {h}"
                raise ValueError(message)
            weight = ' font-weight="600"' if number == 0 else ' fill="#444"'
            self._text(x + w / 2, top + number * LINE, text, weight)

    def frame(self, x: int, y: int, w: int, h: int, title: str, kind: str = "plain") -> None:
        """Draw a dashed frame around what belongs together."""
        stroke = COLOURS[kind][1]
        self._rect(x, y, w, h, f'rx="8" fill="none" stroke="{stroke}" stroke-dasharray="5 4"')
        self._text(x + 10, y + 18, title, f' font-weight="600" fill="{stroke}"', anchor="start")

    def arrow(
        self, *points: tuple[int, int], label: str = "", at: tuple[int, int] | None = None, dashed: bool = False
    ) -> None:
        """Draw a line through the points that ends in an arrow head."""
        path = "M" + " L".join(f"{x},{y}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.4"{dash} marker-end="url(#head)"/>'
        )
        if label:
            (x1, y1), (x2, y2) = points[0], points[-1]
            x, y = at or ((x1 + x2) // 2, (y1 + y2) // 2 - 6)
            self.label(x, y, label)

    def label(self, x: float, y: float, text: str, *, colour: str = "#444", anchor: str = "middle") -> None:
        """Write a small text."""
        self._text(x, y, text, f' fill="{colour}" font-size="11"', anchor)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = "#999", dash: str = "") -> None:
        """Draw a plain line."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="1.4"{dashes}/>'
        )

    def dot(self, x: float, y: float, kind: str) -> None:
        """Draw a row of a stream."""
        fill, stroke = COLOURS[kind]
        self._parts.append(f'<circle cx="{x}" cy="{y}" r="6" fill="{fill}" stroke="{stroke}" stroke-width="1.6"/>')

    def _rect(self, x: int, y: int, w: int, h: int, style: str) -> None:
        self._parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" {style}/>')

    def _text(self, x: float, y: float, text: str, style: str, anchor: str = "middle") -> None:
        self._parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(text)}</text>')

    def svg(self) -> str:
        """Return the whole file."""
        head = (
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="#555"/></marker></defs>'
        )
        paper = f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#ffffff"/>'
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="12.5">\n'
            f"<title>{escape(self.title)}</title>\n{head}\n{paper}\n{body}\n</svg>\n"
        )


def overview() -> Drawing:
    """From sources to sinks, with what goes aside and what is stored."""
    d = Drawing(860, 300, "Penstock: from sources to sinks")
    d.box(20, 40, 130, 50, "topics", "Kafka protocol", kind="plain")
    d.box(20, 105, 130, 50, "files", "csv, json, Parquet", kind="plain")
    d.box(20, 170, 130, 50, "your own source", kind="plain")
    d.frame(190, 20, 440, 215, "pipeline: one Spark query, epoch by epoch", kind="penstock")
    d.box(210, 60, 180, 80, "native lane", "scan, parse, filter,", "partial aggregate (DuckDB)", kind="penstock")
    d.box(430, 60, 180, 80, "Spark lane", "windows, joins, state,", "watermark, output", kind="spark")
    d.box(210, 165, 180, 50, "late and rejected rows", "staged and counted", kind="bad")
    d.box(430, 165, 180, 50, "checkpoint", "offsets, state, epochs", kind="store")
    d.box(690, 40, 150, 50, "topics", "transactions", kind="store")
    d.box(690, 105, 150, 50, "files, S3", "staged, then renamed", kind="store")
    d.box(690, 170, 150, 50, "PostgreSQL, SQLite", "rows and ledger", kind="store")
    for y in (65, 130, 195):
        d.arrow((150, y), (210, 100))
        d.arrow((610, 100), (690, y))
    d.arrow((390, 100), (430, 100))
    d.arrow((300, 140), (300, 165), dashed=True)
    d.arrow((520, 140), (520, 165), dashed=True)
    d.arrow((390, 200), (410, 200), (410, 262), (660, 262), (660, 215), (690, 215), dashed=True)
    d.label(535, 278, "late_to, rejected_to")
    d.label(765, 245, "exactly once")
    return d


def epoch() -> Drawing:
    """The six steps of an epoch."""
    d = Drawing(860, 250, "One epoch")
    steps = [
        ("1 plan", ("choose offsets,", "write, sync them"), "penstock"),
        ("2 read", ("tasks scan, parse,", "filter, aggregate"), "penstock"),
        ("3 compute", ("shuffle, state,", "close windows"), "spark"),
        ("4 stage", ("tasks call prepare;", "not visible yet"), "penstock"),
        ("5 commit", ("driver commits", "sinks and ledgers"), "store"),
        ("6 done", ("Spark commits", "the epoch"), "spark"),
    ]
    for number, (title, lines, kind) in enumerate(steps):
        x = 12 + number * 141
        d.box(x, 60, 131, 74, title, *lines, kind=kind)
        if number:
            d.arrow((x - 10, 97), (x, 97))
    d.arrow((708, 134), (708, 190), (75, 190), (75, 134), dashed=True)
    d.label(400, 182, "crash before step 6: replay with the same offsets, watermark and number")
    d.label(642, 225, "a sink whose ledger has the epoch skips it", colour="#2e7d32")
    d.label(44, 50, "from here on it can be replayed", colour="#3949ab", anchor="start")
    d.arrow((782, 60), (782, 25), (30, 25), (30, 60), label="next epoch", at=(420, 18))
    return d


def lanes() -> Drawing:
    """What runs in which lane."""
    d = Drawing(860, 230, "Two lanes")
    d.frame(15, 20, 411, 190, "native lane: DuckDB inside the scan's tasks", kind="penstock")
    d.frame(480, 20, 365, 190, "Spark lane", kind="spark")
    d.box(30, 60, 90, 56, "scan", "Arrow", kind="penstock")
    d.box(140, 60, 130, 56, "filter, project", "event_time", kind="penstock")
    d.box(285, 60, 130, 56, "partial", "per key and pane", kind="penstock")
    d.box(495, 60, 90, 56, "shuffle", "by key", kind="spark")
    d.box(602, 60, 110, 56, "merge", "state, windows", kind="spark")
    d.box(729, 60, 105, 56, "output", "prepare", kind="spark")
    for start, end in ((120, 140), (270, 285), (415, 495), (585, 602), (712, 729)):
        d.arrow((start, 88), (end, 88))
    d.label(453, 80, "few rows")
    d.box(495, 150, 217, 44, "nodes that stay in Spark", kind="spark")
    d.arrow((205, 116), (205, 172), (495, 172), dashed=True)
    d.label(315, 165, "an expression that is not on the list")
    d.arrow((540, 150), (540, 116), dashed=True)
    return d


def watermark() -> Drawing:
    """Partitions, their newest times, and the watermark."""
    d = Drawing(860, 300, "The watermark of a source")
    x0, scale = 130, 10.0
    at = lambda second: x0 + second * scale  # noqa: E731
    rows = {
        "partition 0": [(4, "plain"), (18, "plain"), (27, "plain"), (46, "plain")],
        "partition 1": [(9, "plain"), (21, "plain"), (35, "plain")],
    }
    for number, (name, dots) in enumerate(rows.items()):
        y = 80 + number * 60
        d.label(20, y + 4, name, anchor="start")
        d.line(x0 - 10, y, 830, y)
        for second, kind in dots:
            d.dot(at(second), y, kind)
        d.label(at(dots[-1][0]), y - 14, f"newest 10:00:{dots[-1][0]}", colour="#3949ab")
    for second in range(0, 71, 10):
        d.line(at(second), 200, at(second), 206)
        d.label(at(second), 222, f"10:0{second // 60}:{second % 60:02d}")
    d.line(x0 - 10, 200, 830, 200, "#333")
    d.line(at(30), 40, at(30), 200, "#c2185b", "6 4")
    d.label(at(30), 32, "watermark 10:00:30 = smallest newest time (35) less max_delay (5 s)", colour="#c2185b")
    d.dot(at(12), 258, "bad")
    d.label(
        at(12) + 14,
        262,
        "arrives in the next epoch with time 10:00:12: its window [10:00:10, 10:00:20) has ended, so it is late",
        anchor="start",
        colour="#c2185b",
    )
    d.label(20, 284, "windows of 10 s that end at or before 10:00:30 are final", anchor="start")
    return d


def exactly_once() -> Drawing:
    """The two kinds of sinks, and a replay."""
    d = Drawing(860, 320, "Exactly once")
    d.label(20, 25, "staged sinks: files, collect, your own", anchor="start", colour="#3949ab")
    d.box(20, 40, 150, 60, "tasks: prepare", "write staged files", kind="penstock")
    d.box(220, 40, 170, 60, "driver: commit", "one write of the ledger", kind="penstock")
    d.box(440, 40, 170, 60, "publish", "files get their names", kind="store")
    d.arrow((170, 70), (220, 70))
    d.arrow((390, 70), (440, 70))
    d.label(20, 140, "sinks with partitions: topics, tables", anchor="start", colour="#3949ab")
    d.box(20, 155, 370, 60, "tasks: prepare", "rows and ledger entry in one transaction per partition", kind="penstock")
    d.box(440, 155, 170, 60, "driver: commit", "nothing left to do", kind="penstock")
    d.arrow((390, 185), (440, 185))
    d.frame(640, 25, 205, 200, "after a crash", kind="bad")
    d.box(655, 60, 175, 60, "same offsets, state,", "watermark, number", kind="spark")
    d.box(655, 145, 175, 60, "ledger has the epoch?", "yes: skip, no: write", kind="store")
    d.arrow((742, 120), (742, 145))
    d.label(430, 258, "A ledger is stored with the rows and identifies an epoch by (lineage, sink, number),")
    d.label(430, 276, "with a digest of the offsets that the epoch read.")
    d.label(430, 300, "A ledger that knows more than the checkpoint stops the job: LedgerAhead.", colour="#c2185b")
    return d


def checkpoint() -> Drawing:
    """Checkpoint, savepoint, lineage, generation."""
    d = Drawing(860, 300, "Checkpoints and savepoints")
    d.frame(15, 20, 520, 130, "checkpoint of job vwap: lineage A", kind="store")
    for number, name in enumerate(("epoch 0", "epoch 1", "epoch 2", "epoch 3", "epoch 4")):
        d.box(30 + number * 98, 55, 84, 74, name, "offsets", "state", kind="store")
        if number:
            d.arrow((16 + number * 98, 92), (30 + number * 98, 92))
    d.arrow((535, 92), (580, 92))
    d.label(645, 96, "continues after a crash")
    d.box(230, 195, 140, 64, "savepoint", "a complete copy", "after epoch 2", kind="plain")
    d.arrow((268, 129), (290, 195), label="create", at=(316, 172))
    d.frame(440, 165, 400, 120, "checkpoint of job vwap-fork: lineage B", kind="penstock")
    for number, name in enumerate(("epoch 3", "epoch 4", "epoch 5")):
        d.box(460 + number * 98, 200, 84, 66, name, "offsets", "state", kind="penstock")
        if number:
            d.arrow((446 + number * 98, 233), (460 + number * 98, 233))
    d.arrow((370, 227), (460, 230), label="restore", at=(404, 218))
    return d


def architecture() -> Drawing:
    """Packages, and what passes between them."""
    d = Drawing(860, 360, "Architecture")
    d.box(20, 20, 150, 50, "cli, testing", kind="plain")
    d.box(20, 100, 150, 66, "public API", "Stream, Pipeline, sql", kind="penstock")
    d.box(230, 100, 150, 66, "plan", "nodes, expressions,", "physical plan", kind="penstock")
    d.box(460, 30, 170, 56, "native", "DuckDB programs", kind="penstock")
    d.box(20, 205, 150, 66, "keyed", "state and timers", kind="penstock")
    d.box(230, 205, 150, 66, "connectors", "sources, sinks", kind="store")
    d.box(230, 310, 150, 40, "log", kind="store")
    d.frame(440, 110, 400, 150, "spark: the only importer of PySpark", kind="spark")
    d.box(455, 145, 115, 44, "session", kind="spark")
    d.box(583, 145, 115, 44, "lowering", kind="spark")
    d.box(455, 202, 115, 44, "epochs", kind="spark")
    d.box(583, 202, 115, 44, "checkpoints", kind="spark")
    d.box(711, 145, 115, 101, "runs", kind="spark")
    d.box(690, 30, 150, 56, "one Spark query", "per epoch", kind="spark")
    d.arrow((95, 70), (95, 100))
    d.arrow((170, 133), (230, 133))
    d.arrow((380, 120), (410, 120), (410, 58), (460, 58))
    d.arrow((380, 145), (440, 145))
    d.arrow((630, 58), (690, 58), label="scan")
    d.arrow((768, 145), (768, 86))
    d.arrow((380, 238), (440, 238))
    d.arrow((95, 205), (95, 186), (440, 186))
    d.arrow((305, 271), (305, 310), label="Kafka protocol", at=(352, 295))
    d.label(640, 280, "imports go one way: session, lowering, epochs, checkpoints, runs")
    d.label(392, 334, "a process of its own, or Apache Kafka", anchor="start")
    return d


def log() -> Drawing:
    """The event log from the socket to the disk."""
    d = Drawing(860, 270, "The event log")
    d.box(20, 95, 120, 60, "Kafka clients", kind="plain")
    d.box(190, 95, 150, 60, "connections", "frames in, answers out", kind="penstock")
    d.box(190, 190, 150, 56, "security", "TLS, SASL, ACLs", kind="penstock")
    d.box(400, 20, 160, 56, "produce, fetch", "raw bytes", kind="penstock")
    d.box(400, 105, 160, 56, "other requests", "one function each", kind="penstock")
    d.box(400, 190, 75, 56, "groups", kind="plain")
    d.box(485, 190, 95, 56, "transactions", kind="plain")
    d.box(650, 60, 190, 70, "storage", "partitions, segments,", "indexes, one fsync for many", kind="store")
    d.box(650, 190, 190, 56, "cleaner", "retention, compaction", kind="store")
    d.arrow((140, 125), (190, 125))
    d.arrow((265, 155), (265, 190))
    d.arrow((340, 115), (400, 55))
    d.arrow((340, 130), (400, 132))
    d.arrow((560, 48), (650, 80))
    d.arrow((440, 161), (440, 190))
    d.arrow((530, 161), (530, 190))
    d.arrow((580, 218), (615, 218), (615, 110), (650, 110), label="internal topics", at=(614, 262))
    d.arrow((745, 190), (745, 130))
    return d


DRAWINGS = {
    "overview": overview,
    "epoch": epoch,
    "lanes": lanes,
    "watermark": watermark,
    "exactly-once": exactly_once,
    "checkpoint": checkpoint,
    "architecture": architecture,
    "log": log,
}


def main() -> int:
    """Write all drawings."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
