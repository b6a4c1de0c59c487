"""Spark's functions whose result has always the same type."""

from __future__ import annotations

from penstock.plan.types import Type, read

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
