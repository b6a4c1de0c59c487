from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.client import source
from penstock.control.client.source import read_source, zipped
from penstock.errors import BadEntry

CODE = "import penstock as ps\n"
Folder = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    def make(*names: str) -> Path:
        for name in names:
            file = tmp_path / "jobs" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(CODE)
        return tmp_path / "jobs"

    return make


def names_in(content: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(content)).namelist()


def test_a_file_is_sent_as_it_is(folder: Folder) -> None:
    found = read_source(folder("vwap.py") / "vwap.py")
    assert (found.filename, found.content, found.entry) == ("vwap.py", CODE.encode(), None)
    assert found.media_type == "text/x-python"


def test_an_sql_file_is_sent_as_it_is(folder: Folder) -> None:
    found = read_source(folder("prices.sql") / "prices.sql")
    assert (found.filename, found.entry, found.media_type) == ("prices.sql", None, "application/sql")


def test_the_name_after_the_colon_is_the_entry(folder: Folder) -> None:
    assert read_source(f"{folder('vwap.py')}/vwap.py:prices").entry == "prices"


def test_a_colon_in_a_path_that_exists_is_part_of_the_path(folder: Folder) -> None:
    found = read_source(f"{folder('a:b.py')}/a:b.py:prices")
    assert (found.filename, found.entry) == ("a:b.py", "prices")


def test_a_folder_is_sent_as_a_zip_of_its_code(folder: Folder) -> None:
    found = read_source(folder("main.py", "lib/rates.py", "lib/query.sql", "notes.md", "trades.csv"))
    assert (found.filename, found.entry, found.media_type) == ("jobs.zip", "main.py", "application/zip")
    assert names_in(found.content) == ["lib/query.sql", "lib/rates.py", "main.py"]


def test_hidden_files_environments_and_caches_are_not_sent(folder: Folder) -> None:
    names = (".env.py", ".git/hook.py", "my-env/lib/x.py", "__pycache__/y.py", "a/.secret.json", "main.py")
    here = folder(*names)
    (here / "my-env" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert names_in(zipped(here)) == ["main.py"]


def test_links_are_not_followed_out_of_the_folder(folder: Folder, tmp_path: Path) -> None:
    here = folder("main.py")
    (tmp_path / "secret.py").write_text("x")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key.py").write_text("x")
    (here / "linked.py").symlink_to(tmp_path / "secret.py")
    (here / "folder").symlink_to(tmp_path / "private")
    assert names_in(zipped(here)) == ["main.py"]


def test_equal_folders_give_equal_bytes(folder: Folder) -> None:
    here = folder("main.py", "lib/rates.py")
    before = zipped(here)
    (here / "main.py").touch()
    assert zipped(here) == before


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}\.py", fullmatch=True), st.binary(max_size=200), max_size=5))
def test_a_zip_has_what_the_folder_has(files: dict[str, bytes]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as text:
        for name, content in files.items():
            Path(text, name).write_bytes(content)
        archive = zipfile.ZipFile(io.BytesIO(zipped(Path(text))))
    assert {name: archive.read(name) for name in archive.namelist()} == files


@pytest.mark.parametrize(
    ("names", "target", "entry"),
    [
        (["only.py"], "", "only.py"),
        (["a.py", "main.py"], "", "main.py"),
        (["a.py", "pipeline.py"], "", "pipeline.py"),
        (["a.py", "b.py"], ":b.py", "b.py"),
        (["a.py", "sub/b.py"], ":sub/b.py:prices", "sub/b.py:prices"),
        (["prices.sql"], "", "prices.sql"),
        (["a.py", "query.sql"], "", "a.py"),
        (["a.py", "query.sql"], ":query.sql", "query.sql"),
    ],
)
def test_the_entry_of_a_folder(folder: Folder, names: list[str], target: str, entry: str) -> None:
    assert read_source(f"{folder(*names)}{target}").entry == entry


@pytest.mark.parametrize(
    ("names", "target", "message", "hint"),
    [
        (["vwap.py"], "/vwpa.py", "file not found: {}/vwpa.py", "did you mean 'vwap.py'?"),
        (["vwap.txt"], "/vwap.txt", "'{}/vwap.txt' is not a Python or SQL file", "penstock submit vwap.py"),
        (["a.py", "b.py"], "", "{} has 2 Python and SQL files, and none of them is main.py", "name one: {}:a.py"),
        (["a.txt"], "", "{} has 0 Python and SQL files", "files there: (none)"),
        (["main.py"], ":prices", "'{}:prices' names no Python or SQL file", "{}:main.py:prices"),
        (["main.py"], ":mian.py", "file not found: {}/mian.py", "did you mean 'main.py'?"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_the_choices(
    folder: Folder, names: list[str], target: str, message: str, hint: str
) -> None:
    here = folder(*names)
    with pytest.raises(BadEntry) as refused:
        read_source(f"{here}{target}")
    assert message.format(here) in refused.value.message
    assert hint.format(here) in str(refused.value.hint)


def test_too_many_files_are_refused(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_FILES", 2)
    with pytest.raises(BadEntry, match="3 files of code; the limit is 2"):
        read_source(folder("main.py", "a.py", "b.py"))


def test_too_many_bytes_are_refused_with_the_largest_files(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_BYTES", 100)
    here = folder("main.py", "rates.json")
    (here / "rates.json").write_text("1" * 200)
    with pytest.raises(BadEntry) as refused:
        read_source(here)
    assert "the largest: rates.json (200), main.py (22)" in str(refused.value.hint)
    (here / "main.py").write_text("#" * 101)
    with pytest.raises(BadEntry, match=r"main\.py has 101 bytes; the limit is 100"):
        read_source(here / "main.py")
