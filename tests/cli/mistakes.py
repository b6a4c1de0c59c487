"""Mistakes of a new user, each as one line of a pipeline file, with what `penstock explain` should say of it.

A case is (code, class of the error, texts that have to be there). Code that starts with `!` is the file's own lines;
other code is the expression of its pipeline.
"""

from __future__ import annotations

HEAD = """
import dataclasses
import datetime as dt
from typing import Any
import penstock as ps

rows = ps.from_items(
    [],
    "k string, v bigint, b boolean, s struct<x:int>, day date, ts timestamp, arr array<int>, m map<string,int>",
).named("rows")
timed = rows.event_time("ts", "5s")
keyed = timed.key_by("k")


def out(stream):
    return ps.Pipeline("p", stream.to(ps.collect()))


def agg(what):
    return out(rows.key_by("k").aggregate(x=what))


def sel(what):
    return out(rows.select(x=what))


def items(schema):
    return out(ps.from_items([], schema))


def windowed(window):
    return out(keyed.window(window).aggregate(n="count(*)"))


class Good(ps.Aggregator):
    state, result = "n bigint", "bigint"
    def start(self): return {"n": 0}
    def add(self, acc, v): return acc
    def merge(self, a, b): return a
    def finish(self, acc): return 1
"""

Case = tuple[str, str, tuple[str, ...]]

AGGREGATES: list[Case] = [
    (f'agg("{call}")', "BadExpression", (f"aggregate 'x': '{call}' does not take {kind}", what))
    for call, kind, what in [
        ("sum(k)", "string", "sum takes numbers; convert the text: sum(try_cast(k as double))"),
        ("avg(k)", "string", "avg(try_cast(k as double))"),
        ("stddev(k)", "string", "stddev takes numbers"),
        ("median(k)", "string", "median takes numbers"),
        ("percentile(k, 0.5)", "string", "percentile takes numbers"),
        ("sum(b)", "boolean", "count_if(b)"),
        ("median(b)", "boolean", "takes numbers"),
        ("sum(s)", "struct<x:int>", "takes numbers"),
        ("var_pop(s)", "struct<x:int>", "takes numbers"),
        ("avg(day)", "date", "takes numbers"),
        ("kurtosis(ts)", "timestamp", "takes numbers"),
        ("sum(arr)", "array<int>", "takes numbers"),
        ("min(m)", "map<string,int>", "a map has no order"),
        ("min_by(v, m)", "bigint, map<string,int>", "a map has no order"),
        ("bool_and(v)", "bigint", "bool_and takes a condition: bool_and(v > 0)"),
        ("count_if(v)", "bigint", "count_if takes a condition"),
    ]
]

EXPRESSIONS: list[Case] = [
    ('sel("b + 1")', "BadExpression", ("select 'x': 'b + 1' does not take boolean, int", "of one type")),
    ('sel("s = k")', "BadExpression", ("does not take struct<x:int>, string", "cast(")),
    ('sel("day = v")', "BadExpression", ("does not take date, bigint", "cast(")),
    ('sel("v and b")', "BadExpression", ("'v' is bigint, not boolean", "compare it with something: v = ...")),
    ('sel("upperr(k)")', "UnknownFunction", ("unknown function 'upperr'", "did you mean upper")),
    ('sel("upper(k, k)")', "BadExpression", ("upper(...) takes 1 argument, not 2", "upper(k)")),
    ('sel("substring(k)")', "BadExpression", ("has no start position", "substring(text, 1, 3)")),
    ('sel("year(v)")', "BadExpression", ("'year(v)' does not take bigint", "timestamp_seconds(v)")),
    ('sel("size(k)")', "BadExpression", ("size takes an array", "split(k, ',')")),
    ('sel("cast(v as strng)")', "BadExpression", ("unknown type 'strng'", "did you mean 'string'?")),
    ('sel("cast(arr as int)")', "BadExpression", ("array<int> cannot be cast to int", "arr[0]")),
    ('sel("cast(day as int)")', "BadExpression", ("date cannot be cast to int", "unix_date(day)")),
    ("sel(\"date_trunc('HUOR', ts)\")", "BadExpression", ("'HUOR' is not a unit", "did you mean 'HOUR'?")),
    ('sel("v.y")', "BadExpression", ("'v' is bigint and has no field 'y'", "only a struct has fields")),
    ('sel("sum(v)")', "AggregateNotAllowed", ("in an expression over single rows", "aggregate(...)")),
    ('sel("pirce")', "UnknownColumn", ("unknown column 'pirce'", "columns here: k, v")),
    ('sel("v +")', "BadExpression", ("something is missing", "^ here")),
    ("sel(3)", "BadExpression", ("select 'x': 3 is not an SQL expression", "pass a string")),
    ('out(rows.filter("v"))', "BadExpression", ("filter: a condition must be boolean", "size > 0")),
    ('out(rows.key_by("kk").aggregate(n="count(*)"))', "UnknownColumn", ("key_by: unknown column 'kk'", "'k'?")),
    ('out(rows.key_by("m").aggregate(n="count(*)"))', "BadValue", ("maps cannot be compared", "use one value of it")),
    ('out(rows.split(a="b")["c"])', "DanglingBranch", ("split: unknown branch 'c'", "branches: a, rest")),
]

WINDOWS: list[Case] = [
    ('windowed(ps.tumbling("10"))', "BadValue", ("size: '10' is not a span of time", '"10m"')),
    ("windowed(ps.tumbling(10))", "BadValue", ("size: 10 is not a span of time", '"10m"')),
    ('windowed(ps.sliding("10s", "20s"))', "BadWindow", ("slide 20s is longer than size 10s", "would be lost")),
    ('windowed(ps.sliding("10s"))', "BadEntry", ("missing 1 required", "it is called as sliding(size, slide")),
    ("windowed(ps.count_window(0))", "BadWindow", ("n=0 is not a number of rows", "from 1")),
    ('windowed("10s")', "BadValue", ("window: '10s' is not a window", "tumbling()")),
    (
        'out(keyed.window(ps.tumbling("1s"), late_to="late").aggregate(n="count(*)"))',
        "BadValue",
        ("window late_to: 'late' is not a sink", "topic()"),
    ),
    (
        'out(keyed.window(ps.tumbling("1s"), emit="finall").aggregate(n="count(*)"))',
        "BadValue",
        ("emit='finall' is not known", '"final"'),
    ),
    ('out(rows.event_time("k", "5s"))', "BadSchema", ("event time 'k' is a string", "to_timestamp(k)")),
    ('out(timed.deduplicate("k", within="h"))', "BadValue", ("within: 'h' is not a span of time", '"1h"')),
]

_TYPES = "types: string, bigint"
SCHEMAS: list[Case] = [
    (f"items({schema})", "BadSchema", (f"schema: {what}", hint))
    for schema, what, hint in [
        ("'a strng, b'", "column 'a' has the unknown type 'strng'", "did you mean 'string'?"),
        ("'a string, b'", "column 'b' has no type", _TYPES),
        ("'a float64'", "column 'a' has the unknown type 'float64'", "did you mean 'double'?"),
        ("'a string,'", "there is an extra comma at its end", "name type"),
        ("',a string'", "there is an extra comma before column 1", "name type"),
        ("''", "no column is given", "name type"),
        ("'a string b int'", "column 'a' has 'b int' after its type string", "comma between columns"),
        ("'a int not nul'", "column 'a' has 'not nul' after its type int", "did you mean 'not null'?"),
        ("'a array<int, b int'", "column 'a' has '<' without '>'", "name type"),
        ("'a array<int>>'", "column 'a' has '>' without '<'", "name type"),
        ("'a array'", "column 'a' has 'array'", "write array<TYPE>"),
        ("'a map<string>'", "column 'a' has 'map<string>'", "write map<"),
        ("'a struct<x>'", "column 'a.x' has no type", "write struct<name: TYPE"),
        ("'a struct<x: strng>'", "column 'a.x' has the unknown type 'strng'", "did you mean 'string'?"),
        ("'a struct<x:int,x:int>'", "column 'a' has the field 'x' twice", "a name of its own"),
        ("'a string, a int'", "column 'a' occurs twice", "a name of its own"),
        ("'a decimal(50,2)'", "column 'a' has decimal(50,2)", "1 to 38"),
        ("'my col string'", "column 'my' has the unknown type 'col'", "`my col` string"),
        ("'a: string'", "column 'a' has a ':' before its type", "write a string"),
        ("'a string; b int'", "column 'a' is followed by a ';'", "commas"),
        ("'a string primary key'", "column 'a' has 'primary key'", "only NOT NULL"),
        ("{'a': int}", "column 'a' has the type <class 'int'>, which is not a string", "{'a': \"bigint\"}"),
        ("5", "5 is not a schema", "pass a DDL string"),
    ]
]

FUNCTIONS: list[Case] = [
    ('out(rows.map("upper(k)"))', "BadFunction", ("map: 'upper(k)' is not a function", "select()")),
    ("out(rows.map(lambda: 1))", "BadFunction", ("map: <lambda>() cannot be called with (row)", "def f(row)")),
    ("out(rows.map(lambda a, b: 1))", "BadFunction", ("cannot be called with (row)", "it gets 1 argument")),
    ("out(rows.map(lambda r, h: r, using=5))", "BadFunction", ("map: using=5 is not a function", "httpx")),
    ('out(rows.map(lambda r: r, on_error="skip"))', "BadValue", ("on_error='skip' is not known", "reject")),
    ("!def f(row): yield row\njob = out(rows.map(f))", "BadFunction", ("map: f yields rows", "use flat_map()")),
    ("!async def f(row): yield row\njob = out(rows.map_async(f))", "BadFunction", ("f yields rows", "return the row")),
    ("!async def f(row): return row\njob = out(rows.map(f))", "BadFunction", ("map: f is async", "use map_async()")),
    ("out(rows.map_async(lambda r: r))", "BadFunction", ("<lambda> is not async", "async def")),
    ('out(rows.key_by("k").reduce(lambda a: a))', "BadFunction", ("cannot be called with (a, b)", "2 arguments")),
    ('out(rows.key_by("k").process(5))', "BadFunction", ("process: 5 is not a process function", "ps.Process")),
    (
        '!class P(ps.Process):\n    output = "a int"\n    def on_row(self, row): yield row\n'
        'job = out(rows.key_by("k").process(P()))',
        "BadFunction",
        ("process 'P': P.on_row(row) cannot be called with (row, ctx)", "2 arguments"),
    ),
    (
        '!class A(ps.Aggregator):\n    state, result = "n bigint", "bigint"\njob = agg(A("v"))',
        "BadFunction",
        ("aggregate 'x': A has no start()", "start(), add(), merge() and finish()"),
    ),
    (
        '!class A(ps.Aggregator): pass\njob = agg(A("v"))',
        "BadFunction",
        ("A has no attribute `state`", "add to the class"),
    ),
    ("agg(Good())", "BadFunction", ("cannot be called with (acc)", "it gets 1 argument")),
    ('agg(Good("vv"))', "UnknownColumn", ("unknown column 'vv'", "'v'?")),
    (
        '!class B(Good):\n    result = "bigit"\njob = agg(B("v"))',
        "BadSchema",
        ("result of B: 'bigit' is not a type", "did you mean 'bigint'?"),
    ),
    ("out(rows.to)", "BadEntry", ("has no attribute 'to'", "the line is")),
]

_NAIVE = "dt.datetime(2026, 1, 1)"
CONSTRUCTORS: list[Case] = [
    (f'out(ps.from_items([{{"a": {_NAIVE}}}], "a timestamp"))', "BadSchema", ("row 0, column 'a'", "no time zone")),
    ('out(ps.from_items([{"a": "x"}], "a int"))', "BadSchema", ("items: row 0, column 'a': 'x'", "is int")),
    ('out(ps.from_items({"a": 1}, "a int"))', "BadSchema", ("items: dict {'a': 1} is not a list of rows", "a list")),
    ('out(ps.read_files("x.csv"))', "BadSchema", ("csv needs a schema", 'schema="name type')),
    ('out(ps.read_files("x.csv", schema="a int", format="cvs"))', "BadValue", ("read_files: format='cvs'", "'csv'?")),
    ('out(ps.read_files("x.csv", schema="a int", formt="csv"))', "BadEntry", ("argument 'formt'", "'format'?")),
    ("out(ps.read_files(5))", "BadValue", ("read_files path: 5 is not a string", "trades/*.csv")),
    (f'out(ps.read_topic("t", schema="a int", start={_NAIVE}))', "BadValue", ("start: 2026-01-01", "no time zone")),
    ('out(ps.read_topic("a b", schema="a int"))', "BadValue", ("topic: 'a b' cannot be", "letters")),
    ('out(ps.read_topic("t", schema="a int", connection="htp://x"))', "BadValue", ("'htp://x' is not", "host:port")),
    ('out(ps.read_topic("t", schema="a int", connection="h:99999"))', "BadValue", ("'99999' of 'h:99999'", "65535")),
    ('out(ps.read_topic("t", schema="a int", connection="h:x"))', "BadValue", ("is not a port", "65535")),
    (
        'out(ps.read_topic("t", schema="a int", connection="kafka://h?tsl=true"))',
        "BadValue",
        ("no option 'tsl'", "'tls'?"),
    ),
    ('out(ps.datagen("trade"))', "BadValue", ("datagen: 'trade' is neither", "did you mean 'trades'?")),
    ('out(ps.datagen("trades", rate="x"))', "BadValue", ("datagen: rate='x' is not a whole number", "rate=1")),
    ('ps.Pipeline("p", rows.to(ps.topic("t", key="kk")))', "UnknownColumn", ("unknown column 'kk'", "'k'?")),
    (
        'ps.Pipeline("p", rows.to(ps.files("o", partition_by="kk")))',
        "UnknownColumn",
        ("files 'o': partition_by", "'k'?"),
    ),
    ('ps.Pipeline("p", rows.to(ps.table("t", connection="mysql://x")))', "BadValue", ("table t: ", "postgresql://")),
    ('ps.Pipeline("p", rows.to(ps.callback(lambda: 1)))', "BadFunction", ("(epoch, table)", "2 arguments")),
    ('ps.Pipeline("p", rows.to(ps.webhook("not a url")))', "BadValue", ("webhook: 'not a url'", "https://host/path")),
    ('ps.Pipeline("p", rows.to("out"))', "BadValue", ("to: 'out' is not a sink", "sinks: topic()")),
    ('ps.Pipeline("p", rows.to(ps.collect))', "BadValue", ("the function collect is not a sink", "call it: collect()")),
    ('ps.Pipeline("p", rows)', "BadValue", ("p: a Stream is not an output", ".to(sink)")),
    ("ps.Pipeline(rows.to(ps.collect()))", "BadValue", ("Pipeline: a Output cannot be", "letters")),
    ('ps.Pipeline("p", rows.to(ps.collect()), rejected_to="bad")', "BadValue", ("p / rejected_to: 'bad'", "sinks")),
    ('ps.Pipeline("p", rows.to(ps.collect()), rejectedto=1)', "BadEntry", ("'rejectedto'", "'rejected_to'?")),
    ("out(rows.named(5))", "BadValue", ("named: 5 cannot be a name", "letters")),
    ('out(timed.join(timed, on="k"))', "BadJoin", ("how near in time", "within=")),
    ('out(ps.sql("select kk from t", t=rows))', "UnknownColumn", ("unknown column 'kk'", "'k'?")),
]

FILES: list[Case] = [
    ('!raise ValueError("boom")', "BadEntry", ("ValueError: boom", "the line is: raise ValueError")),
    ("!x = 1", "BadEntry", ("has no pipeline", "job = ps.Pipeline(...)")),
    ('!a = out(rows)\nb = ps.Pipeline("q", rows.to(ps.collect()))', "BadEntry", ("has 2 pipelines", "name one")),
    ("!job = out(rows", "BadEntry", ("SyntaxError", "the line is: job = out(rows")),
    ("!import nosuchmodule", "BadEntry", ("nosuchmodule", "pip install")),
    ('!job = out(rows.fliter("b"))', "BadEntry", ("has no attribute 'fliter'", "did you mean 'filter'?")),
    ('!job = ps.red_files("x")', "BadEntry", ("no attribute 'red_files'", "did you mean 'read_files'?")),
    ("!def job() -> ps.Pipeline:\n    return 5", "BadEntry", ("job() returned int", "return ps.Pipeline")),
    ("!def job(n) -> ps.Pipeline:\n    return out(rows)", "BadEntry", ("job() needs 'n'", "--set n=")),
]

ALL = [*AGGREGATES, *EXPRESSIONS, *WINDOWS, *SCHEMAS, *FUNCTIONS, *CONSTRUCTORS, *FILES]
