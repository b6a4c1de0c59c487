"""DuckDB in batch: what the same answer costs when nothing is a stream. A reference, not a peer."""

from __future__ import annotations

import duckdb

from benchmarks.answer import answer
from benchmarks.peers.protocol import Config, Folders, main


def job(config: Config, folders: Folders) -> None:
    """Read, aggregate and write Parquet in one query."""
    with duckdb.connect(config={"threads": config.cores}) as db:
        db.execute("SET TimeZone = 'UTC'")
        query = answer(config.case, config.input, config.format)
        db.execute(f"COPY ({query}) TO '{folders.output}/part.parquet' (FORMAT parquet)")


if __name__ == "__main__":
    main(job)
