"""Functions of numbers. What comes from a mathematics library (exp, ln, pow, sin) differs in the last bit: not here."""

from __future__ import annotations

from penstock.plan.portable.forms import Form
from penstock.plan.portable.parts import Part, stay


def _whole(call: str) -> str:
    """Round to a bigint as Java does, to which NaN is 0; what is too large raises."""
    return f"CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({call}({{0}}) AS BIGINT) END"


def _rounded(part: Part, places: Part) -> str:
    """Round a decimal; the number of places is part of Spark's result type, so it is written out."""
    if places.number is None or not 0 <= places.number <= part.type.size[1]:
        stay("round to a number of places that is not within the decimal's")
    return f"round({part.sql}, {int(places.number)})"


_SIGN = "CASE WHEN {0} > 0 AND NOT isnan({0}) THEN 1 WHEN {0} < 0 THEN -1 ELSE {0} END"

NUMBERS = [
    Form("abs", "whole", "abs({0})", fails=True),
    Form("abs", "float", "abs({0})"),
    Form("abs", "decimal", "abs({0})"),
    Form("negative", "whole", "(0 - {0})", fails=True),
    Form("negative", "float", "(-{0})"),
    Form("negative", "decimal", "(-{0})"),
    Form("positive", "whole", "{0}"),
    Form("positive", "double", "{0}"),
    Form("sign signum", "whole", "sign({0})"),
    Form("sign signum", "double", _SIGN),
    Form("floor ceil ceiling", "whole", "{0}"),
    Form("floor", "float", _whole("floor"), fails=True),
    Form("ceil ceiling", "float", _whole("ceil"), fails=True),
    Form("floor", "decimal", "floor({0})"),
    Form("ceil ceiling", "decimal", "ceil({0})"),
    Form("round", "whole", "{0}"),
    # No decimal is -0: Spark rounds by way of one.
    Form("round", "double", "(round({0}) + 0.0::DOUBLE)"),
    Form("round", "decimal", "round({0}, 0)"),
    Form("round", "decimal int", _rounded),
    Form("sqrt", "double", "CASE WHEN {0} < 0 THEN 'nan'::DOUBLE ELSE sqrt({0}) END"),
    Form("isnan", "float", "coalesce(isnan({0}), FALSE)"),
    Form("nanvl", "double double", "CASE WHEN isnan({0}) THEN {1} ELSE {0} END"),
]
