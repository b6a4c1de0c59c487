"""Promise: a type that Penstock infers while a pipeline is built is the type that Spark will find.

Nothing is executed: each expression is only analysed by Spark, over an empty table with all types.
"""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.functions import expr

from penstock.errors import PipelineError
from penstock.plan.sql_expressions.expression import aggregate, scalar
from penstock.schema import Schema, quoted
from penstock.settings import Settings
from penstock.spark.session.spark_session import session

Fields = dict[str, spark_types.StructField]
INPUT = Schema(
    "tiny tinyint, small smallint, i int, big bigint, f float, d double, "
    "dec decimal(10,2), wide decimal(38,18), whole decimal(5,0), s string not null, flag boolean, "
    "bin binary, day date, ts timestamp, ntz timestamp_ntz, span interval day to second, "
    "arr array<int>, words array<string>, deep array<array<int>>, m map<string,double>, "
    "st struct<a:int,b:string,c:struct<d:double>>, rows array<struct<x:int,y:string>>, "
    "`order id` bigint, key string"
)
SCALARS = """
i | `order id` | st.a | st.c.d | st.c | rows.x | rows[0].y | arr[0] | m['k'] | m.k | deep[0][1] | 1 | 10L
1S | 1Y | 1.5 | 1.50 | 0.01 | .5 | 100. | 1e3 | 1.5D | 1.5F | 1.5BD | 0.01BD | 3000000000 | -2147483648
99999999999999999999 | 'text' | "text" | true | x'1F' | r'a\\d' | date '2026-01-01' | (i)
timestamp '2026-01-01 00:00:00' | timestamp_ntz '2026-01-01 00:00:00' | -i | -d | -dec | -s | +i | - span
~i | ~big | i + 1 | i + big | tiny + small | tiny + 1 | i + f | big + f | f + f | f + d | d + i | i + s
d + s | dec + s | i + null | null + dec | i - 1 | i * big | i / 2 | i / big | f / f | d / i | i % 3
big % i | i div 2 | dec div 3 | dec + 1 | dec + 100 | 1 + dec | dec + (-1) | dec + i | dec + big | dec + 1.5
dec + whole | dec - dec | dec * dec | dec * 2 | dec * wide | wide * wide | wide + wide | wide / dec
dec / 3 | dec / dec | whole / whole | dec % 7 | dec % wide | dec + d | dec * f | dec / d | dec + 10L
tiny * dec | small / dec | 1.5 + 2.25 | 1.5 * 2 | 10 / 4 | 1 / 3.0 | i & 3 | i | i ^ big | big & i | i << 2
big >> 1 | s || s | i || s | bin || bin | arr || arr | words || words | i = 1 | i = s | dec = 1 | s = 'a'
i <=> null | i != 2 | i <> 2 | d >= dec | day = '2026-01-01' | ts > day | i is null | flag is true
flag is not false | i is distinct from big | i is not distinct from big | s like 'a%' | s not like 'a'
s ilike 'A' | s rlike 'a' | s like any ('a', 'b') | s like 'a' escape '!' | i in (1, 2) | s not in ('a')
i between 1 and 2 | day between '2026-01-01' and ts | not flag | flag and i > 1 or false
case when i > 1 then i else big end | case when flag then 1 when i > 1 then 2.5 end
case i when 1 then 'a' end | case when flag then null else i end | if(flag, i, d) | if(flag, dec, i)
if(flag, day, ts) | if(flag, s, i) | coalesce(i, big) | coalesce(dec, 1) | coalesce(dec, d)
coalesce(null, s) | coalesce(s, i) | coalesce(s, d) | coalesce(s, dec) | coalesce(day, s)
coalesce(flag, s) | coalesce(f, i) | coalesce(dec, wide) | coalesce(arr, array(1L)) | coalesce(ts, ntz)
coalesce(ts, day) | coalesce(ntz, day) | coalesce(bin, s) | coalesce(st, st) | coalesce(tiny, small)
nullif(i, 1) | ifnull(i, 1.5) | nvl(s, 'x') | nvl2(i, s, 'x') | nvl2(flag, i, d) | greatest(i, d)
least(dec, 1, big) | zeroifnull(i) | zeroifnull(d) | nullifzero(dec) | nanvl(d, 0) | equal_null(i, big)
decode(i, 1, 'a', 2, 'b') | decode(bin, 'UTF-8') | decode(i, 1, 2.5, 3) | cast(s as int)
cast(s as decimal(12,3)) | cast(i as string) | s::date | try_cast(s as timestamp) | cast(s as long)
cast(arr as array<bigint>) | cast(st as struct<x:bigint,y:string,z:struct<w:float>>) | cast(i as decimal)
cast(null as int) | cast(s as interval day to second) | cast(to_number(s, '999') as decimal(3,0)) | int(s)
bigint(i) | double(s) | string(i) | date(s) | timestamp(s) | boolean(s) | decimal(s) | binary(s)
cast(ts as timestamp_ltz) | day + 1 | 1 + day | day - 1 | day + interval 1 day | day + interval 1 hour
day - interval 1 month | ts + interval 1 hour | ts - interval '1' day | ntz + interval 5 minutes
interval 2 weeks + ts | ts + span | ts - ts | ts - day | ntz - ntz
ts + interval '1 02:03:04' day to second | span + interval 1 hour | span * 2 | 2 * span | span / 2
span - span | ts + interval 1 day 2 hours | ts + make_interval(0, 1) | ts + make_dt_interval(1)
ts + make_ym_interval(1) | abs(span) | day - cast(day as timestamp) | ts - s
ts + interval 100 milliseconds | ts > ts - interval 1 day | span div span | date_add(day, 1)
date_sub(ts, i) | dateadd(HOUR, 1, ts) | dateadd(day, 1) | timestampadd(MINUTE, i, ntz) | add_months(day, 1)
datediff(day, ts) | datediff(HOUR, ts, ts) | timestampdiff(DAY, ts, ntz) | months_between(ts, day)
date_trunc('hour', ts) | date_trunc('day', day) | trunc(day, 'month') | last_day(day) | next_day(day, 'MO')
year(day) | hour(ts) | second(ts) | extract(hour from ts) | extract(second from ts) | extract(year from day)
date_part('minute', ts) | date_part('SECOND', ts)
extract(dow from day) | extract(doy from ts) | extract(week from ts) | extract(qtr from ts)
extract(day from span) | extract(hour from span)
extract(second from span) | unix_timestamp(ts) | to_unix_timestamp(s) | unix_millis(ts) | unix_date(day)
from_unixtime(big) | timestamp_seconds(big) | timestamp_millis(big) | to_timestamp(s) | to_date(s, 'yyyy')
to_timestamp_ntz(s) | date_format(ts, 'yyyy') | from_utc_timestamp(ts, 'CET') | make_date(i, 1, 1)
current_timestamp | current_timestamp() | now() | current_date | current_date() | localtimestamp()
weekday(day) | make_timestamp(2026, 1, 1, 0, 0, 1.5) | time_bucket(interval '15' minute, ts)
convert_timezone('CET', ntz) | dayname(day) | abs(i) | abs(dec) | abs(s) | round(d) | round(dec)
round(dec, 1) | round(dec, -1) | round(i, -1) | round(wide, 20) | bround(dec, 1) | ceil(d) | ceil(dec)
ceil(whole) | floor(i) | floor(dec, 1) | ceil(d, 1) | floor(big, -1) | ceil(f, 2) | sqrt(i) | pow(i, 2)
exp(d) | ln(d) | log(2, d) | sign(i) | sign(dec) | signum(d) | mod(i, 2) | pmod(dec, 3) | pmod(i, big)
try_add(i, 1) | try_add(dec, 1) | try_subtract(ts, span) | try_multiply(dec, dec) | try_divide(i, 2)
try_divide(dec, 3) | try_mod(dec, 7) | negative(dec) | positive(s) | factorial(i) | bit_count(i)
shiftleft(i, 1) | shiftright(big, 1) | hash(i, s) | xxhash64(s) | crc32(s) | md5(s) | sha2(s, 256) | hex(i)
unhex(s) | conv(s, 10, 16) | bin(i) | rand(1) | width_bucket(d, 0, 10, 5) | greatest(s, 'a') | e() | pi()
isnan(d) | uuid(1) | hmac(bin, bin) | encode(s, 'UTF-8') | upper(s) | lower(i) | concat(s, i)
concat(bin, bin) | concat(arr, arr) | concat(arr, array(1L)) | concat_ws(',', s, words) | substring(s, 1)
substr(bin, 1, 2) | substring(s from 1 for 2) | left(s, 1) | left(bin, 1) | right(s, 1) | trim(s)
trim(both 'x' from s) | ltrim('x', s) | lpad(s, 3, ' ') | lpad(bin, 3) | rpad(bin, 3, bin)
overlay(s placing 'a' from 1) | overlay(bin, bin, 1) | length(s) | char_length(s) | position('a' in s)
position('a', s) | instr(s, 'a') | locate('a', s) | split(s, ',') | split_part(s, ',', 1)
regexp_replace(s, 'a', 'b') | regexp_extract(s, 'a') | regexp_extract_all(s, 'a') | regexp_like(s, 'a')
replace(s, 'a') | reverse(s) | reverse(arr) | repeat(s, 2) | initcap(s) | base64(bin) | unbase64(s)
contains(s, 'a') | startswith(s, 'a') | format_number(d, 2) | format_string('%d', i) | ascii(s) | chr(i)
elt(1, s, 'a') | to_char(dec, '999') | levenshtein(s, 'a') | soundex(s) | sentences(s)
translate(s, 'a', 'b') | str_to_map(s) | elt(1, bin, bin) | get_json_object(s, '$.a')
from_json(s, 'a int, b array<double>') | from_json(s, 'array<int>') | to_json(st)
from_json(s, 'struct<a:int>') | from_json(s, 'a int').a | from_csv(s, 'a int, b string')
json_array_length(s) | variant_get(parse_json(s), '$.a', 'int') | cast(parse_json(s) as string)
json_object_keys(s) | parse_url(s, 'HOST') | array(1, 2) | array(1, 2.5) | array('a', 1) | array(i, null)
array(arr, deep[0]) | array(day, ts) | size(arr) | array_contains(arr, 1) | array_distinct(arr)
array_append(arr, 1L) | array_prepend(words, 'a') | array_insert(arr, 1, 2) | array_union(arr, array(null))
array_max(arr) | array_min(words) | array_position(arr, 1) | array_remove(arr, 1)
array_union(arr, array(1L)) | slice(arr, 1, 2) | array_except(arr, arr) | array_repeat(s, 2)
arrays_zip(arr, words) | arrays_zip(arr, array(1)) | flatten(deep) | sequence(1, i) | sequence(1, big)
sequence(day, day) | sort_array(arr) | element_at(arr, 1) | element_at(m, 'a') | try_element_at(m, 'a')
get(words, 0) | array_join(words, ',') | array_size(arr) | arrays_overlap(arr, arr) | array_compact(arr)
cardinality(m) | map('a', 1, 'b', 2.5) | map_keys(m) | map_values(m) | map_entries(m)
map_from_arrays(words, arr) | map_concat(m, m) | map_from_entries(map_entries(m)) | map_contains_key(m, 'a')
map(i, st)['1'].a | shuffle(arr, 1) | struct(i, s) | struct(i, i + 1) | struct(i as x, s as y)
struct(st.a, 1) | named_struct('a', i, 'b c', s) | (i, s) | struct(rows[0].x) | named_struct('a', i).a
struct(i, s).s | st in (st) | transform(arr, z -> z + 1) | transform(arr, (z, n) -> z * n)
transform(arr, z -> z + big) | transform(rows, r -> r.y) | transform(deep, a -> transform(a, b -> b + d))
filter(arr, z -> z > 1) | filter(arr, (z, n) -> n > 0) | exists(arr, z -> z = 1)
forall(arr, z -> z is null) | aggregate(arr, 0, (acc, z) -> acc + z)
aggregate(arr, 0L, (acc, z) -> acc + z, acc -> acc / 2) | reduce(words, '', (acc, z) -> acc || z)
zip_with(arr, words, (a, b) -> struct(a, b)) | zip_with(arr, arr, (a, b) -> a + b)
map_filter(m, (k, v) -> v > 1) | transform_keys(m, (k, v) -> length(k)) | transform_values(m, (k, v) -> k)
map_zip_with(m, m, (k, a, b) -> a + b) | array_sort(arr) | array_sort(arr, (a, b) -> b - a)
transform(words, w -> upper(w)) | transform(arr, i -> i * 2) | transform(map_entries(m), e -> e.value)
typeof(i) | assert_true(flag) is null
"""
AGGREGATES = """
count(*) | count(1) | count(i) | count(i, s) | count_if(flag) | sum(tiny) | sum(i) | sum(big) | sum(f)
sum(d) | sum(dec) | sum(wide) | sum(whole) | sum(span) | sum(dec * 2) | sum(d * big) / sum(big)
sum(i) / count(*) | sum(dec) / sum(i) | avg(i) | avg(dec) | avg(wide) | avg(d) | avg(span)
mean(i) | try_sum(i) | try_sum(dec) | try_avg(dec) | try_avg(i) | min(i) | max(s) | max(dec) | max(ts)
min(day) | max(st) | max(ts) - min(ts) | min(arr) | max(flag) | min(bin) | max_by(s, ts) | min_by(st, i)
max_by(i, ts, 3) | mode(s) | median(i) | median(span) | percentile(i, 0.5) | percentile(i, array(0.5))
percentile_approx(i, 0.5) | percentile_approx(dec, array(0.5, 0.9)) | approx_percentile(d, 0.5, 100)
percentile_cont(0.5) within group (order by i) | percentile_disc(0.5) within group (order by d desc)
mode() within group (order by s) | listagg(s, ',') within group (order by i) | string_agg(s)
listagg(s, ',') | stddev(i) | stddev_pop(dec) | stddev_samp(d) | std(i) | variance(i) | var_pop(i)
var_samp(i) | corr(i, d) | covar_pop(i, d) | covar_samp(i, d) | skewness(i) | kurtosis(i) | regr_slope(d, i)
regr_count(d, i) | regr_r2(d, i) | regr_avgx(dec, i) | regr_avgy(dec, i) | collect_list(s) | collect_set(i)
array_agg(st) | collect_list(struct(i, s)) | approx_count_distinct(s) | bool_and(flag) | bool_or(flag)
every(flag) | some(flag) | any(flag) | bit_and(i) | bit_or(big) | bit_xor(tiny) | histogram_numeric(i, 5)
sum(i) filter (where flag) | count(*) filter (where i > 1) | coalesce(sum(i), 0) | round(avg(dec), 2)
sum(case when flag then 1 else 0 end) | sum(i) > 10 | concat(key, max(s)) | hll_sketch_agg(i)
hll_sketch_estimate(hll_sketch_agg(i)) | count_min_sketch(i, 0.5d, 0.5d, 1) | approx_top_k(s)
bitmap_construct_agg(bitmap_bit_position(i)) | size(collect_set(s)) | transform(collect_list(i), z -> z + 1)
sum(aggregate(arr, 0, (acc, z) -> acc + z)) | named_struct('n', count(*), 't', sum(dec)) | max(i) - min(i)
sum(i) % 7 | -sum(i) | max_by(struct(i, ts), ts).i | sum(arr[0]) | element_at(collect_list(i), 1)
array_agg(s)[0] | if(count(*) > 1, sum(i), null)
"""
REFUSED_BY_BOTH = """
i + flag | flag + 1 | arr + 1 | i and flag | not i | i = arr | m = m | case when i then 1 end | if(i, 1, 2)
i is true | flag and 1
coalesce(i, arr) | coalesce(i, flag) | array(1, flag) | i.x | st.zz | arr['a'].b | ts + 1 | ts + ts
day * 2 | d & 1 | sum_i | element_at(i, 1) | flatten(arr) | transform(i, z -> z) | filter(arr, z -> z + 1)
upper(s, s) | upper() | map(1) | i between 1 and arr | abs(flag) | span * span | span / span | s + s | s * s
s - day - flag | map_keys(arr) | array_append(i, 1) | array_union(arr, array(2.5)) | round(flag)
extract(nosuch from ts) | date_part('nosuch', ts) | I | S.a | st.A | nosuch(i) | year(i) | hour(flag) | date_add(i, 1)
size(s) | array_contains(i, 1) | last_day(d) | cast(arr as int) | cast(day as int) | cast(i as date)
cast(flag as timestamp) | cast(m as double) | cast(st as bigint) | cast(ts as boolean) | cast(bin as int)
"""
# Spark would convert these texts to conditions, and fail on the first row, or on all.
CONDITIONS_REFUSED = "s and flag | not s | s is true | flag and 'x' | case when s then 1 end | if(s, 1, 2)"
AGGREGATES_REFUSED_BY_BOTH = """
stddev(flag) | var_pop(st) | corr(day, i) | median(flag) | percentile(st, 0.5) | percentile_approx(flag, 0.5) | sum(day)
min(m) | max_by(i, m) | bool_and(i) | count_if(d) | kurtosis(ts) | avg(arr) | regr_slope(i, ts) | every(day)
"""
# Spark makes numbers and conditions of texts here, and fails on the first row whose text is none.
TEXTS_REFUSED = """
sum(s) | avg(s) | stddev(s) | median(s) | percentile(s, 0.5) | try_sum(s) | corr(i, s) | skewness(s)
count_if(s) | bool_and(s) | bool_or(s) | every(s) | some(s) | any(s) | regr_count(i, s) | histogram_numeric(s, 5)
bitmap_construct_agg(s) | percentile_disc(0.5) within group (order by s)
"""


def _listed(text: str) -> list[str]:
    return [part for line in text.strip().splitlines() for part in line.split(" | ")]


@pytest.fixture(scope="module")
def empty(settings: Settings) -> DataFrame:
    return session(settings).createDataFrame([], INPUT.ddl)


@pytest.fixture(scope="module")
def scalars(empty: DataFrame) -> Fields:
    """What Spark finds for every scalar, by one analysis: a query each would take a minute."""
    return _found(_listed(SCALARS), empty.selectExpr)


@pytest.fixture(scope="module")
def aggregates(empty: DataFrame) -> Fields:
    """The same for every aggregate."""
    return _found(_listed(AGGREGATES), lambda *parts: empty.groupBy("key").agg(*map(expr, parts)))


def _found(expressions: list[str], query: Callable[..., DataFrame]) -> Fields:
    schema = query(*(f"{sql} as it{number}" for number, sql in enumerate(expressions))).schema
    return {sql: schema[f"it{number}"] for number, sql in enumerate(expressions)}


def _text(kind: spark_types.DataType) -> str:
    """Write a Spark type as Penstock does."""
    if isinstance(kind, spark_types.StructType):
        return f"struct<{','.join(f'{quoted(f.name)}:{_text(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, spark_types.ArrayType):
        return f"array<{_text(kind.elementType)}>"
    if isinstance(kind, spark_types.MapType):
        return f"map<{_text(kind.keyType)},{_text(kind.valueType)}>"
    return kind.simpleString()


@pytest.mark.parametrize("sql", _listed(SCALARS))
def test_scalar_has_the_type_that_spark_finds(sql: str, scalars: Fields) -> None:
    field = scalars[sql]
    found = scalar(sql, INPUT, node="select")
    assert found.type == _text(field.dataType)
    assert found.nullable or not field.nullable


@pytest.mark.parametrize("sql", _listed(AGGREGATES))
def test_aggregate_has_the_type_that_spark_finds(sql: str, aggregates: Fields) -> None:
    field = aggregates[sql]
    found = aggregate(sql, INPUT, keys=("key",), node="aggregate")
    assert found.type == _text(field.dataType)
    assert found.nullable or not field.nullable


@pytest.mark.parametrize("sql", _listed(REFUSED_BY_BOTH))
def test_what_spark_refuses_is_refused_while_the_pipeline_is_built(sql: str, empty: DataFrame) -> None:
    with pytest.raises(AnalysisException):
        empty.selectExpr(f"{sql} as it")
    with pytest.raises(PipelineError):
        scalar(sql, INPUT, node="select")


@pytest.mark.parametrize("sql", _listed(CONDITIONS_REFUSED))
def test_a_text_is_no_condition(sql: str) -> None:
    with pytest.raises(PipelineError):
        scalar(sql, INPUT, node="select")


@pytest.mark.parametrize("sql", _listed(AGGREGATES_REFUSED_BY_BOTH))
def test_an_aggregate_that_spark_refuses_is_refused_while_the_pipeline_is_built(sql: str, empty: DataFrame) -> None:
    with pytest.raises(AnalysisException):
        empty.groupBy("key").agg(expr(sql))
    with pytest.raises(PipelineError):
        aggregate(sql, INPUT, keys=("key",), node="aggregate")


@pytest.mark.parametrize("sql", _listed(TEXTS_REFUSED))
def test_aggregates_that_convert_texts_are_refused_with_the_cast_to_write(sql: str) -> None:
    with pytest.raises(PipelineError, match=r"try_cast\(\w+ as (double|boolean)\)"):
        aggregate(sql, INPUT, keys=("key",), node="aggregate")


def test_the_list_of_functions_is_the_one_that_spark_has(spark: SparkSession) -> None:
    tool = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "spark_functions.py"))
    lines = tool["TARGET"].read_text().splitlines()
    assert dict(line.split()[:2] for line in lines) == tool["groups"](spark)
