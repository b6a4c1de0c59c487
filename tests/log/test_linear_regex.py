"""Regular expressions of clients agree with Python's own matcher, and take no more time than their size says."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.errors import ErrorCode, LogError
from penstock.log.linear_regex import _MOST_CACHED, LinearRegex

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", r"\.", "-", "[a-c_]", r"\W", r"\S", "^", "$", ""])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "*?"])).map(
            lambda each: f"(?:{each[0]}){each[1]}"
        ),
        inner.map(lambda each: f"({each})"),
        inner.map(lambda each: f"(?i:{each})"),
        inner.map(lambda each: f"(?s:{each})"),
    ),
    max_leaves=8,
)
TEXTS = st.text("abcAB.-_1\n", max_size=6)


@given(EXPRESSIONS, TEXTS)
def test_an_expression_matches_what_python_matches(expression: str, text: str) -> None:
    """But for `$`, which in RE2 is the end of the text, also if a newline is last."""
    wanted = re.fullmatch(expression.replace("$", r"\Z"), text)
    assert LinearRegex(expression).matches(text) == bool(wanted), expression


@pytest.mark.parametrize(("expression", "text"), [("é[à-ü].", "éèö"), ("(?i)É.*", "éa"), ("(?i:[^é])", "a")])
def test_an_expression_matches_letters_of_any_alphabet(expression: str, text: str) -> None:
    assert LinearRegex(expression).matches(text)
    assert not LinearRegex("(?i:[^é])").matches("É")


def test_the_cache_of_an_expression_with_many_states_is_bounded() -> None:
    regex = LinearRegex("(a|b)*a(a|b){100}c")
    for number in range(10):
        assert not regex.matches(f"{3 ** (180 + number):b}".replace("0", "a").replace("1", "b"))
    assert regex._cached
    assert sum(map(len, regex._cached.values())) <= _MOST_CACHED


@pytest.mark.parametrize("expression", ["(a*)*b", "(a|a)*b", "a*a*a*a*a*a*a*a*b", "(a?){60}b"])
def test_an_expression_that_backtracking_never_finishes_is_decided_at_once(expression: str) -> None:
    begun = time.monotonic()
    assert not LinearRegex(expression).matches("a" * 5000)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize(
    "expression",
    ["(", "[", "(?=a)b", r"(a)\1", "a{1,100000}", "((a{50}){50}){50}", "x" * 2000, "(" * 500, "(?m)a", r"\ba"],
)
def test_what_is_no_expression_or_needs_backtracking_is_refused(expression: str) -> None:
    with pytest.raises(LogError) as caught:
        LinearRegex(expression)
    assert caught.value.code is ErrorCode.invalid_regular_expression
