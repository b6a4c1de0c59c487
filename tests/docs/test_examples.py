"""Promise: the Python in the docs builds; what it runs on Spark is tested elsewhere."""

from __future__ import annotations

import doctest
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TEXTS = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
PAGES = sorted(str(page.relative_to(ROOT)) for page in TEXTS if BLOCK.search(page.read_text("utf-8")))
RUNS = re.compile(r"^out = run_to_end\(", re.MULTILINE)
TABLES = """
    CREATE TABLE users (id text NOT NULL PRIMARY KEY, name text);
    CREATE TABLE customer_history (id text NOT NULL, since timestamp NOT NULL, tier text);
"""


def given() -> dict[str, Any]:
    """Return the streams that pages take as read."""
    streams = {
        "clicks": "user string, page string, ts timestamp",
        "orders": "order_id bigint, amount double, ts timestamp",
        "payments": "card string, customer string, amount double, ts timestamp",
        "quotes": "symbol string, bid double, ts timestamp",
        "shipments": "order_id bigint, carrier string, ts timestamp",
        "trades": "symbol string, price double, ts timestamp",
    }
    timed = {name: ps.read_topic(name, schema=schema).event_time("ts", "5s") for name, schema in streams.items()}
    return timed | {"ps": ps}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What pages take to be there: a database and a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_CONNECTIONS", f"crm=sqlite:///{tmp_path}/crm.db")
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.executescript(TABLES)
    (tmp_path / "rates").mkdir()
    pq.write_table(pa.table({"currency": ["EUR"], "rate": [1.0]}), tmp_path / "rates" / "all.parquet")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_build(page: str) -> None:
    names = given()
    for number, code in enumerate(BLOCK.findall((ROOT / page).read_text("utf-8"))):
        where = f"{page}, block {number + 1}"
        if code.startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(code, names, where, None, None)
            assert doctest.DocTestRunner().run(example).failed == 0, where
        else:
            exec(compile(RUNS.split(code)[0], where, "exec"), names)
