"""Every source keeps the promises that the test kit checks for users' own sources."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files.source import FileSource
from penstock.connectors.generators.datagen import DataGen
from penstock.connectors.generators.items import ItemSource
from penstock.schema import Schema
from penstock.testing import check_source

PAIRS = Schema("a bigint, b string not null")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "1.csv").write_text("b,a\nx,1\ny,z\n")
    (tmp_path / "2.csv").write_text("2,y\n\n3,z")
    (tmp_path / "in.json").write_text('{"a":1,"b":"x"}\n{"a":2}\n{"a":3,"b":"z"}\n')
    pq.write_table(
        pa.table({"a": range(10), "b": [*list("abcdefghi"), None]}), tmp_path / "in.parquet", row_group_size=3
    )
    return tmp_path


@pytest.mark.parametrize("path", ["*.csv", "in.json", "in.parquet"])
def test_files_keep_the_contract(folder, path):
    check_source(lambda: FileSource(path, PAIRS, base=str(folder)))


def test_made_up_rows_keep_the_contract():
    check_source(lambda: DataGen("trades", rows=5))


def test_items_keep_the_contract():
    check_source(lambda: ItemSource([{"a": 1, "b": "x"}, b"{", (3, "z")], PAIRS))
