"""Names that columns really have: other letters, signs, words of SQL, and names that Penstock or Spark use too."""

from __future__ import annotations

LETTERS = ("größe", "日本", "é", "e\u0301", "🐟", "x" * 300, "1st")
SIGNS = ("a.b", "a.b.c", "order id", " lead", "it's", 'say "x"', "a`b", "``", "a,b", "a=b", "a/b", "a:b", "a;b", "a\\b")
MORE_SIGNS = ("%d", "?", "$x", "#", "*", "-", "--c", "/*c*/", "'", "\\", "()", "[0]", "a[0]", "{x}", "<b>", "&", "|")
WORDS = ("select", "order", "from", "null", "true", "like", "with", "current_date", "current_path", "timestamp", "date")
OURS = (
    *("window", "session_window", "rank", "key", "value", "_key", "_change", "node", "reason", "row", "raw", "source"),
    *("position", "epoch", "at", "only", "tag", "o0", "data", "part", "number", "bucket", "by", "acc", "main", "v0"),
    *("start", "end", "time", "offset", "partition", "index", "this", "element", "count", "left", "right", "c0"),
)
CASES = ("Key", "KEY", "Order")
NAMES = (*LETTERS, *SIGNS, *MORE_SIGNS, *WORDS, *OURS, *CASES)


def backticked(name: str) -> str:
    """A name as SQL."""
    return "`" + name.replace("`", "``") + "`"
