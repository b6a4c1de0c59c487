"""The result types of Spark's functions: fixed, or by a rule over the types of the arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from penstock.errors import BadSchema
from penstock.plan.sql_expressions.arithmetic_types import bits, operate, scaled
from penstock.plan.sql_expressions.types import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    VOID,
    Type,
    array,
    as_decimal,
    common,
    decimal,
    operands,
    read,
    struct,
)
from penstock.schema import Schema

# The parts of times and intervals, in each of Spark's spellings.
_SECONDS = re.compile("s|sec(ond)?s?")
_SMALL_FIELDS = re.compile("mon(th)?s?|h|hrs?|hours?|m|min(ute)?s?")
_FIELDS = re.compile("y(ea)?rs?|years?|y|yearofweek|quarter|qtr|w|weeks?|d|days?|(dayofweek|dow)(_iso)?|doy")


class CannotTellType(Exception):
    """A function that Spark has, but whose result type is not known here."""


@dataclass(frozen=True)
class Call:
    """A function call: the types of its arguments, the arguments, and a way to type a lambda."""

    name: str
    args: tuple[Type, ...]
    nodes: tuple[exp.Expr, ...]
    body: Callable[[exp.Expr, tuple[Type, ...]], Type]

    def literal(self, index: int) -> str:
        """Return the text of an argument that must be a literal; the type depends on it."""
        node = self.nodes[index] if index < len(self.nodes) else None
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
            return f"-{node.this.name}"
        if not isinstance(node, exp.Literal):
            raise CannotTellType
        return node.name

    def whole(self, index: int) -> int:
        """Return the value of an argument that must be a whole literal."""
        try:
            return int(self.literal(index))
        except ValueError:
            raise CannotTellType from None


Rule = Callable[[Call], Type | None]


def number(kind: Type) -> Type | None:
    """Return the number that an argument becomes where Spark wants one."""
    if kind in (STRING, VOID):
        return DOUBLE
    return kind if kind.is_numeric else None


def first(call: Call) -> Type | None:
    """Return the type of the first argument; `mode()` without one lacks its WITHIN GROUP."""
    return call.args[0] if call.args else None


def common_of_all(call: Call) -> Type | None:
    """Return the type that all arguments have in common."""
    return common(call.args)


def _operator(sign: str, call: Call) -> Type | None:
    return operate(sign, *operands(call.nodes, call.args))


def _signed(call: Call) -> Type | None:
    return call.args[0] if call.args[0].is_interval else number(call.args[0])


def _sign(call: Call) -> Type | None:
    return DOUBLE if _signed(call) else None


def _same_bits(call: Call) -> Type | None:
    return bits(call.args[0], call.args[0])


def _shift(call: Call) -> Type | None:
    return BIGINT if call.args[0] == BIGINT else INT


def _rounded(call: Call) -> Type | None:
    kind = number(call.args[0])
    if kind is None or kind.name != "decimal":
        return kind
    return _rounded_decimal(kind, call.whole(1) if len(call.args) > 1 else 0)


def _rounded_decimal(kind: Type, places: int) -> Type:
    whole = kind.size[0] - kind.size[1] + 1
    if places < 0:
        return decimal(max(whole, 1 - places), 0)
    return decimal(whole + min(places, kind.size[1]), min(places, kind.size[1]))


def _up_or_down(call: Call) -> Type | None:
    kind = number(call.args[0])
    if kind is None:
        return None
    if len(call.args) > 1:
        exact = {"double": decimal(30, 15), "float": decimal(14, 7)}.get(kind.name, as_decimal(kind))
        return _rounded_decimal(exact, call.whole(1))
    if kind.name != "decimal":
        return BIGINT
    return kind if kind.size[1] == 0 else decimal(kind.size[0] - kind.size[1] + 1, 0)


def _sum(call: Call) -> Type | None:
    kind = call.args[0]
    if kind.is_interval:
        return kind
    if kind.is_integer:
        return BIGINT
    if kind.name == "decimal":
        return decimal(kind.size[0] + 10, kind.size[1])
    return DOUBLE if number(kind) else None


def _average(call: Call) -> Type | None:
    kind = call.args[0]
    if kind.is_interval:
        return scaled(kind)
    if kind.name == "decimal":
        return decimal(kind.size[0] + 4, kind.size[1] + 4)
    return DOUBLE if number(kind) else None


def _extreme_by(call: Call) -> Type | None:
    return array(call.args[0]) if len(call.args) > 2 else call.args[0]


def _percentile(call: Call) -> Type | None:
    kind = scaled(call.args[0]) if call.args[0].is_interval else DOUBLE
    return array(kind) if any(arg.name == "array" for arg in call.args[1:]) else kind


def _approximate_percentile(call: Call) -> Type | None:
    kind = DOUBLE if call.args[0] in (STRING, VOID) else call.args[0]
    return array(kind) if call.args[1].name == "array" else kind


def _histogram(call: Call) -> Type | None:
    return array(struct([("x", call.args[0]), ("y", DOUBLE)]))


def _top(call: Call) -> Type | None:
    return array(struct([("item", call.args[0]), ("count", BIGINT)]))


def _text_or_bytes(call: Call) -> Type | None:
    """Type functions that cut or pad: bytes stay bytes unless text is mixed in."""
    mixed = STRING in call.args[1:]
    return BINARY if call.args[0] == BINARY and not mixed else STRING


def _concatenated(call: Call) -> Type | None:
    if any(arg.parts for arg in call.args):
        kind = common(call.args)
        return kind if kind and kind.name == "array" else None
    return BINARY if call.args and set(call.args) == {BINARY} else STRING


def _decoded(call: Call) -> Type | None:
    if len(call.args) == 2:
        return STRING
    results = call.args[2::2] if len(call.args) % 2 else (*call.args[2::2], call.args[-1])
    return common(results)


def _if_null_or_not(call: Call) -> Type | None:
    return common(call.args[1:])


def _zero_if_null(call: Call) -> Type | None:
    return common((call.args[0], INT))


def _parsed(call: Call) -> Type | None:
    """Type from_json and its like by their schema, which must be a literal."""
    text = call.literal(1)
    try:
        if "<" in text.split()[0]:
            return read(text)
        return struct((field.name, read(field.type)) for field in Schema(text))
    except (BadSchema, IndexError):
        raise CannotTellType from None


def _variant_part(call: Call) -> Type | None:
    return read(call.literal(2)) if len(call.args) > 2 else Type("variant")


def _second(call: Call) -> Type | None:
    return call.args[1]


def _timestamp_plus(call: Call) -> Type | None:
    kind = call.args[-1]
    return TIMESTAMP if kind in (DATE, STRING) else kind


def date_field(name: str, kind: Type) -> Type | None:
    """Return the type of a part of a time, as `extract` gives it; None if there is no such part."""
    name = name.lower()
    if _SECONDS.fullmatch(name):
        return decimal(8, 6)
    if _SMALL_FIELDS.fullmatch(name):
        return Type("tinyint") if kind.is_interval else INT
    return INT if _FIELDS.fullmatch(name) else None


def _date_part(call: Call) -> Type | None:
    return date_field(call.literal(0), call.args[1])


_BY_RULE: list[tuple[str, Rule]] = [
    ("min max mode nullif nullifzero", first),
    ("coalesce greatest ifnull least nvl", common_of_all),
    ("nvl2", _if_null_or_not),
    ("zeroifnull", _zero_if_null),
    ("abs negative positive", _signed),
    ("sign signum", _sign),
    ("shiftleft shiftright shiftrightunsigned", _shift),
    ("bit_and bit_or bit_xor", _same_bits),
    ("round bround", _rounded),
    ("ceil ceiling floor", _up_or_down),
    ("sum try_sum", _sum),
    ("avg mean try_avg regr_avgy", _average),
    ("regr_avgx", lambda call: _average(replace(call, args=call.args[1:]))),
    ("max_by min_by", _extreme_by),
    ("percentile percentile_cont percentile_disc median", _percentile),
    ("approx_percentile percentile_approx", _approximate_percentile),
    ("histogram_numeric", _histogram),
    ("approx_top_k", _top),
    ("substr substring left lpad rpad overlay listagg string_agg", _text_or_bytes),
    ("concat", _concatenated),
    ("elt", lambda call: BINARY if set(call.args[1:]) == {BINARY} else STRING),
    ("decode", _decoded),
    ("from_json from_csv from_xml", _parsed),
    ("variant_get try_variant_get", _variant_part),
    ("time_bucket", _second),
    ("timestampadd", _timestamp_plus),
    ("date_part datepart extract", _date_part),
    ("try_add", partial(_operator, "+")),
    ("try_subtract", partial(_operator, "-")),
    ("try_multiply", partial(_operator, "*")),
    ("try_divide", partial(_operator, "/")),
    ("mod pmod try_mod", partial(_operator, "%")),
]
SCALARS: dict[str, Rule] = {name: rule for names, rule in _BY_RULE for name in names.split()}
_FIXED = {
    "string": """
        array_join base64 bin btrim char chr collation concat_ws conv current_catalog
        current_database current_path current_schema current_timezone current_user date_format
        dayname format_number format_string from_unixtime get_json_object hex initcap
        kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float lcase
        lower ltrim make_valid_utf8 mask md5 monthname parse_url printf quote randstr
        regexp_extract regexp_replace regexp_substr repeat replace right rtrim schema_of_csv
        schema_of_json schema_of_variant schema_of_variant_agg schema_of_xml session_user sha sha1
        sha2 soundex space split_part string substring_index to_base32 to_char to_csv
        to_json to_varchar to_xml translate trim try_parse_url try_url_decode try_validate_utf8
        typeof ucase upper url_decode url_encode user uuid validate_utf8 version xpath_string
    """,
    "binary": """
        aes_decrypt aes_encrypt binary bitmap_and_agg bitmap_construct_agg bitmap_or_agg
        count_min_sketch encode from_base32 hll_sketch_agg hll_union hll_union_agg hmac
        kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
        kll_sketch_agg_double kll_sketch_agg_float kll_sketch_merge_bigint kll_sketch_merge_double
        kll_sketch_merge_float theta_difference theta_intersection theta_intersection_agg
        theta_sketch_agg theta_union theta_union_agg to_avro to_binary to_protobuf try_aes_decrypt
        try_to_binary unbase64 unhex
    """,
    "boolean": """
        and any array_contains arrays_overlap between bool_and bool_or boolean contains endswith
        equal_null every ilike is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull
        like luhn_check map_contains_key or regexp regexp_like rlike some startswith xpath_boolean
    """,
    "tinyint": "bit_get getbit tinyint",
    "smallint": "smallint xpath_short",
    "int": """
        array_size ascii bit_count bit_length cardinality char_length character_length date_diff
        datediff day dayofmonth dayofweek dayofyear find_in_set hash hour instr int
        json_array_length len length levenshtein locate minute month octet_length position quarter
        regexp_count regexp_instr second size unix_date weekday weekofyear xpath_int year
    """,
    "bigint": """
        approx_count_distinct array_position bigint bitmap_bit_position bitmap_bucket_number
        bitmap_count count count_if crc32 div factorial hll_sketch_estimate kll_sketch_get_n_bigint
        kll_sketch_get_n_double kll_sketch_get_n_float regr_count theta_sketch_estimate
        timestampdiff to_unix_timestamp unix_micros unix_millis unix_seconds unix_timestamp
        width_bucket xpath_long xxhash64
    """,
    "float": """
        float vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm
        xpath_float
    """,
    "double": """
        acos acosh asin asinh atan atan2 atanh cbrt corr cos cosh cot covar_pop covar_samp csc
        degrees double e exp expm1 hypot jaro_winkler_similarity kurtosis ln log log10 log1p log2
        months_between nanvl pi pow power radians rand randn random regr_intercept regr_r2
        regr_slope regr_sxx regr_sxy regr_syy rint sec sin sinh skewness sqrt std stddev stddev_pop
        stddev_samp tan tanh var_pop var_samp variance xpath_double xpath_number
    """,
    "decimal(10,0)": "decimal",
    "date": """
        add_months curdate current_date date date_add date_from_unix_date date_sub dateadd last_day
        make_date next_day to_date trunc try_to_date
    """,
    "timestamp": """
        current_timestamp date_trunc from_utc_timestamp make_timestamp make_timestamp_ltz now
        timestamp timestamp_micros timestamp_millis timestamp_seconds to_timestamp to_timestamp_ltz
        to_utc_timestamp try_make_timestamp try_make_timestamp_ltz try_to_timestamp
    """,
    "timestamp_ntz": """
        convert_timezone localtimestamp make_timestamp_ntz to_timestamp_ntz try_make_timestamp_ntz
    """,
    "void": "assert_true raise_error",
    "variant": """
        parse_json to_variant_object try_parse_json try_variant_array_append try_variant_insert
        try_variant_set variant_array_append variant_delete variant_insert variant_set
        variant_strip_nulls
    """,
    "interval": "make_interval try_make_interval",
    "interval day to second": "make_dt_interval",
    "interval year to month": "make_ym_interval",
    "array<string>": "json_object_keys regexp_extract_all split xpath",
    "array<array<string>>": "sentences",
    "array<float>": "vector_avg vector_normalize vector_sum",
    "map<string,string>": "str_to_map",
}
FIXED: dict[str, Type] = {name: read(kind) for kind, names in _FIXED.items() for name in names.split()}
