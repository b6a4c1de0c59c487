"""TPC-H: its tables as small data of the generator, its queries as they are written."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from penstock.schema import Schema

MONEY = "double"
_TABLES = {
    "region": "r_regionkey int, r_name string, r_comment string",
    "nation": "n_nationkey int, n_name string, n_regionkey int, n_comment string",
    "supplier": "s_suppkey bigint, s_name string, s_address string, s_nationkey int, s_phone string, s_acctbal MONEY, "
    "s_comment string",
    "customer": "c_custkey bigint, c_name string, c_address string, c_nationkey int, c_phone string, c_acctbal MONEY, "
    "c_mktsegment string, c_comment string",
    "part": "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
    "p_container string, p_retailprice MONEY, p_comment string",
    "partsupp": "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost MONEY, ps_comment string",
    "orders": "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice MONEY, o_orderdate date, "
    "o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
    "lineitem": "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity MONEY, "
    "l_extendedprice MONEY, l_discount MONEY, l_tax MONEY, l_returnflag string, l_linestatus string, l_shipdate date, "
    "l_commitdate date, l_receiptdate date, l_shipinstruct string, l_shipmode string, l_comment string",
}
KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}


def schemas(money: str = MONEY) -> dict[str, Schema]:
    """Return the schemas of the tables, none of whose columns is null."""
    kinds = {name: ddl.replace("MONEY", money) for name, ddl in _TABLES.items()}
    return {name: Schema(re.sub(r"(,|$)(?!\d)", r" not null\1", ddl)) for name, ddl in kinds.items()}


@cache
def queries() -> dict[str, str]:
    """Return the 22 queries."""
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- (q\d+)[^\n]*\n", text, flags=re.MULTILINE)[1:]
    return {name: sql.strip().rstrip(";") for name, sql in zip(parts[::2], parts[1::2], strict=True)}


@cache
def data(scale: float) -> dict[str, pa.Table]:
    """Return the tables of the generator; money as text of two decimals, to be cast."""
    program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    with TemporaryDirectory() as folder:
        subprocess.run([program, "csv", "-s", str(scale), "-o", folder], check=True, capture_output=True)
        return {name: _read(Path(folder) / f"{name}.csv", schema) for name, schema in schemas("decimal(12,2)").items()}


def _read(path: Path, schema: Schema) -> pa.Table:
    table = duckdb.sql(f"SELECT * FROM read_csv('{path}', header=true, all_varchar=true)").to_arrow_table()
    return pa.table([table[field.name].cast(field.type) for field in schema.arrow], schema=schema.nullable().arrow)
