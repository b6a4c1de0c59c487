"""Topic patterns agree with Python's own matcher, and take no more time than their size says."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.errors import ErrorCode, LogError
from penstock.log.groups.consumer.regex import TopicPattern

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\d", r"\.", "-", "[a-c_]", r"\W", "^", "$", ""])
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
    ),
    max_leaves=8,
)
TOPICS = st.text("abcAB.-_1", max_size=6)


@given(EXPRESSIONS, TOPICS)
def test_a_pattern_matches_what_python_matches(expression: str, name: str) -> None:
    assert TopicPattern(expression).matches(name) == bool(re.fullmatch(expression, name)), expression


@pytest.mark.parametrize("expression", ["(a*)*b", "(a|a)*b", "a*a*a*a*a*a*a*a*b", "(a?){60}b"])
def test_a_pattern_that_backtracking_never_finishes_is_decided_at_once(expression: str) -> None:
    begun = time.monotonic()
    assert not TopicPattern(expression).matches("a" * 249)
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("expression", ["(", "[", "(?=a)b", r"(a)\1", "a{1,100000}", "((a{50}){50}){50}", "x" * 2000])
def test_what_is_no_pattern_or_needs_backtracking_is_refused(expression: str) -> None:
    with pytest.raises(LogError) as caught:
        TopicPattern(expression)
    assert caught.value.code is ErrorCode.invalid_regular_expression
