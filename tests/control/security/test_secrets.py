from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.security.secrets import Secrets
from penstock.errors import MissingSecret
from penstock.secret_references import from_environment, references, with_values

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,10}", fullmatch=True)
plain = st.text(st.characters(exclude_characters="$")) | st.integers() | st.none() | st.booleans()
texts = plain | names.map(lambda name: f"a ${{secret:{name}}} b")
values = st.recursive(texts, lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner), max_leaves=10)


@given(values)
def test_every_reference_is_replaced_and_nothing_else(value: Any) -> None:
    assert references(with_values(value, lambda name: f"value of {name}")) == frozenset()
    found = {name: f"<{name}>" for name in references(value)}
    assert with_values(value, found.__getitem__) == with_values(value, lambda name: f"<{name}>")
    if not found:
        assert with_values(value, found.__getitem__) == value


@given(values)
def test_a_driver_gets_the_variables_that_its_settings_refer_to(value: Any) -> None:
    manager = {f"PENSTOCK_SECRET_{name}": name * 2 for name in references(value) | {"OTHER"}}
    driver = Secrets(environment=manager).environment(value, {})
    assert driver.keys() == {f"PENSTOCK_SECRET_{name}" for name in references(value)}
    assert with_values(value, from_environment(driver)) == with_values(value, lambda name: name * 2)


def test_a_value_that_looks_like_a_reference_is_not_followed() -> None:
    assert with_values("${secret:A}", {"A": "${secret:B}"}.__getitem__) == "${secret:B}"


@pytest.mark.parametrize("reference", ["${secret:}", "${secret:a b}", "${secret:../x}", "${secret:1}", "${secret:é}"])
def test_a_reference_without_a_proper_name_is_refused(reference: str) -> None:
    with pytest.raises(MissingSecret, match="not a reference"):
        references([reference])
    with pytest.raises(MissingSecret, match="not a reference"):
        with_values(reference, lambda name: name)


def test_the_environment_comes_before_files(tmp_path: Path) -> None:
    write(tmp_path / "CRM", "from the file")
    assert Secrets(tmp_path, {}).find("CRM") == "from the file"
    assert Secrets(tmp_path, {"PENSTOCK_SECRET_CRM": "from a variable"}).find("CRM") == "from a variable"


def test_the_store_comes_last(tmp_path: Path) -> None:
    stored = {"CRM": "from the store", "API": "of the store"}.get
    write(tmp_path / "CRM", "from the file")
    assert Secrets(tmp_path, {}, stored).find("CRM") == "from the file"
    assert Secrets(tmp_path, {}, stored).find("API") == "of the store"
    with pytest.raises(MissingSecret, match="penstock secret set OTHER"):
        Secrets(tmp_path, {}, stored).find("OTHER")


@pytest.mark.parametrize(("content", "value"), [("abc\n", "abc"), ("abc\r\n", "abc"), ("a\nb\n\n", "a\nb\n"), ("", "")])
def test_the_end_of_the_line_is_not_part_of_a_secret(tmp_path: Path, content: str, value: str) -> None:
    write(tmp_path / "CRM", content)
    assert Secrets(tmp_path, {}).find("CRM") == value


def test_a_secret_that_does_not_exist_is_an_error_that_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(MissingSecret, match="'CRM'") as error:
        Secrets(tmp_path, {}).environment({"password": "${secret:CRM}"})
    assert "PENSTOCK_SECRET_CRM" in str(error.value)
    assert str(tmp_path / "CRM") in str(error.value)
    with pytest.raises(MissingSecret, match="set PENSTOCK_SECRET_CRM"):
        from_environment({})("CRM")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    write(tmp_path / "CRM", "abc", mode)
    with pytest.raises(MissingSecret, match="chmod 600") as error:
        Secrets(tmp_path, {}).find("CRM")
    assert "abc" not in str(error.value)


def test_a_file_that_is_no_secret_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "LONG", "x" * 100_000)
    write(tmp_path / "BINARY", "")
    (tmp_path / "BINARY").write_bytes(b"\xff\xfe")
    (tmp_path / "FOLDER").mkdir()
    for name, problem in (("LONG", "larger"), ("BINARY", "not UTF-8"), ("FOLDER", "no secret")):
        with pytest.raises(MissingSecret, match=problem):
            Secrets(tmp_path, {}).find(name)


def write(path: Path, content: str, mode: int = 0o600) -> None:
    path.write_bytes(content.encode())
    path.chmod(mode)
