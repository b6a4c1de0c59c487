"""Masking and validation by the types of fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from penstock.control.api.fields import MaskedObject, Object, Request, mask

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=10,
)
NAMES = st.sampled_from(["password", "api_token", "aws_secret_access_key", "sasl.jaas.config"])


@given(VALUES)
def test_masking_twice_is_masking_once(value: Any) -> None:
    assert mask(mask(value)) == mask(value)


@given(NAMES, st.text(st.characters(categories=["L", "N"]), min_size=8), VALUES)
def test_a_secret_is_masked_by_its_name_wherever_it_is(name: str, secret: str, other: Any) -> None:
    value = {"a": [{"b": {name: secret}}], "c": other}
    masked = TypeAdapter(MaskedObject).validate_python(value)
    assert masked["a"] == [{"b": {name: "***"}}]


def test_masking_leaves_flags_and_references() -> None:
    given_ = {"password": "${secret:DB}", "token_enabled": True, "secret": False, "name": "vwap"}
    assert mask(given_) == given_


@pytest.mark.parametrize(
    "text", ["${secret:DB}abc", "abc${secret:DB}", "${secret:DB", "${secret:a b}", "${secret:DB}\n"]
)
def test_a_secret_that_only_resembles_a_reference_is_masked(text: str) -> None:
    assert mask({"password": text}) == {"password": "***"}


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_an_object_is_refused_if_and_only_if_it_has_nul(value: dict[str, Any]) -> None:
    has_nul = "\\u0000" in json.dumps(value).replace("\\\\", "")
    if has_nul:
        with pytest.raises(ValidationError):
            TypeAdapter(Object).validate_python(value)
    else:
        assert TypeAdapter(Object).validate_python(value) == value


def test_an_object_that_is_nested_too_deeply_is_refused() -> None:
    value: Any = {}
    for _ in range(200):
        value = {"a": value}
    with pytest.raises(ValidationError, match="nested too deeply"):
        TypeAdapter(Object).validate_python(value)


class Order(Request):
    price: int = 0


@given(st.text())
def test_an_unknown_field_is_named_whatever_it_is_called(name: str) -> None:
    if name != "price":
        with pytest.raises(ValidationError, match="unknown field"):
            Order.model_validate({name: 1})


def test_an_unknown_field_comes_with_the_one_that_was_meant() -> None:
    with pytest.raises(ValidationError, match="did you mean 'price'"):
        Order.model_validate({"pirce": 1})
