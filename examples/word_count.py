"""Count words of standard input, as they come.

cat README.md | penstock run examples/word_count.py --until ended
"""

from collections.abc import Iterator

import penstock as ps


def words(row: dict[str, str]) -> Iterator[dict[str, str]]:
    """Cut a line into words."""
    for word in row["value"].lower().split():
        yield {"word": word.strip(".,;:!?\"'()`*#")}


lines = ps.read_stdin()
counts = lines.flat_map(words, "word string").filter("word != ''").key_by("word").aggregate(times="count(*)")
pipeline = ps.Pipeline("word-count", counts.to(ps.console()))
