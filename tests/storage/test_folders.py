"""Folders: the same promises on a disk, in S3, and through pyarrow."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import SettingsError, StoreFailed
from penstock.spark.tasks.staging import Staging
from penstock.storage.folders import Folder, LocalFolder, folder
from penstock.storage.hadoop_folders import HadoopFolder
from penstock.storage.journals import journal
from penstock.storage.object_folders import ObjectFolder
from tests.s3 import BUCKET, SpoilingProxy


@pytest.fixture(params=["disk", "s3", "arrow"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder of each kind; pyarrow's stands for HDFS, which there is none of here."""
    if request.param == "disk":
        return LocalFolder(tmp_path / "f")
    if request.param == "arrow":
        return HadoopFolder(f"file://{tmp_path}/f")
    return ObjectFolder.at(f"s3://{BUCKET}/{uuid.uuid4().hex}", request.getfixturevalue("s3"))


def test_what_is_written_is_read_and_listed(here: Folder) -> None:
    assert here.names() == []
    assert here.read("a/b") is None
    here.write("a/b", b"one")
    here.write("a/b", b"two", sync=False)
    here.write("a c", b"")
    assert (here.read("a/b"), here.read("a c"), (here / "a").read("b")) == (b"two", b"", b"two")
    assert here.names() == ["a", "a c"]
    assert (here / "a").names() == ["b"]
    assert here.files() == {"a/b": 3, "a c": 0}


def test_a_file_written_once_is_never_replaced(here: Folder) -> None:
    here.write("x", b"mine", once=True)
    with pytest.raises(FileExistsError):
        here.write("x", b"yours", once=True)
    assert here.read("x") == b"mine"
    assert here.names() == ["x"]


def test_files_and_folders_are_removed_and_what_is_not_there_is_no_mistake(here: Folder) -> None:
    for name in ("a/b", "a/c/d", "ab"):
        here.write(name, b"1")
    here.remove("a")
    here.remove("nothing")
    assert here.files() == {"ab": 1}
    here.remove("ab")
    assert here.files() == {}


def test_files_are_copied_to_a_folder_of_any_kind(here: Folder, tmp_path: Path) -> None:
    here.write("a/b", b"1")
    for to in (here / "copy", LocalFolder(tmp_path / "other")):
        here.copy(["a/b"], to)
        assert to.read("a/b") == b"1"
    LocalFolder(tmp_path / "other").copy(["a/b"], here / "back")
    assert (here / "back").read("a/b") == b"1"


def test_a_folder_travels_by_pickle(here: Folder) -> None:
    here.write("x", b"1")
    assert pickle.loads(pickle.dumps(here)).read("x") == b"1"


def test_a_journal_keeps_its_lines_and_lets_one_writer_win(here: Folder) -> None:
    first, second = journal(here, "ticks"), journal(here, "ticks")
    assert first.append([b"1", b"2"])
    assert not second.append([b"3"]), "it has not seen the first two lines"
    assert second.fresh() == [b"1", b"2"]
    assert second.append([b"3"])
    assert (first.fresh(), first.fresh()) == ([b"3"], [])
    assert journal(here, "ticks").fresh() == [b"1", b"2", b"3"]


def test_a_torn_last_line_of_a_journal_is_not_there_and_spoils_nothing(tmp_path: Path) -> None:
    (tmp_path / "ticks.jsonl").write_bytes(b"1\n2")
    ticks = journal(LocalFolder(tmp_path), "ticks")
    assert ticks.fresh() == [b"1"]
    assert ticks.append([b"3"])
    assert (tmp_path / "ticks.jsonl").read_bytes() == b"1\n3\n"


def test_many_writers_of_one_name_make_one_winner(s3: dict[str, str]) -> None:
    there = ObjectFolder.at(f"s3://{BUCKET}/{uuid.uuid4().hex}", s3)
    won: list[int] = []

    def write(number: int) -> None:
        try:
            there.write("x", str(number).encode(), once=True)
            won.append(number)
        except FileExistsError:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [str(number).encode() for number in won] == [there.read("x")]


@pytest.fixture
def proxy(s3: dict[str, str]) -> Iterator[SpoilingProxy]:
    made = SpoilingProxy(int(s3["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    yield made
    made.close()


def test_a_store_that_answers_500_is_asked_again_then_named(s3: dict[str, str], proxy: SpoilingProxy) -> None:
    address = s3 | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}", "AWS_MAX_ATTEMPTS": "3"}
    there = ObjectFolder.at(f"s3://{BUCKET}/{uuid.uuid4().hex}", address)
    there.write("x", b"1")
    proxy.spoil("500")
    with pytest.raises(StoreFailed, match=r"s3://lake/.*/x: the object store failed.*500") as failed:
        there.write("x", b"2")
    assert proxy.spoiled == 3
    assert failed.value.transient
    assert KEY not in str(failed.value)
    proxy.spoil("pass")
    assert there.read("x") == b"1"


def test_a_store_that_hangs_is_asked_again_when_it_is_back(s3: dict[str, str], proxy: SpoilingProxy) -> None:
    address = s3 | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    there = ObjectFolder.at(f"s3://{BUCKET}/{uuid.uuid4().hex}", address)
    proxy.spoil("stall")
    writer = threading.Thread(target=there.write, args=("x", b"1"), kwargs={"once": True})
    writer.start()
    while not proxy.spoiled:
        writer.join(0.01)
    proxy.spoil("pass")
    writer.join()
    assert there.read("x") == b"1"


KEY = "penstock-secret"


def test_keys_are_never_shown(s3: dict[str, str]) -> None:
    there = ObjectFolder.at(f"s3://{BUCKET}/x", s3)
    assert KEY not in f"{there} {there!r} {there.url} {there.hadoop}"
    wrong = ObjectFolder.at(f"s3://{BUCKET}/x", s3 | {"AWS_SECRET_ACCESS_KEY": "other-secret"})
    with pytest.raises(StoreFailed, match="403") as refused:
        wrong.read("x")
    assert "other-secret" not in str(refused.value)


def test_addresses_name_the_kind_of_folder(tmp_path: Path) -> None:
    assert folder(tmp_path) == folder(str(tmp_path)) == folder(f"file://{tmp_path}") == LocalFolder(tmp_path)
    assert folder("a:b").local == Path("a:b").absolute()
    assert folder("s3a://lake/x/").url == folder(Path("s3://lake/x")).url == "s3://lake/x"
    assert (folder("s3://lake/x") / "y").hadoop == "s3a://lake/x/y"
    assert folder("memory:a") is folder("memory:a")
    assert folder("memory:a") != folder("memory:b")
    with pytest.raises(SettingsError, match="ftp://host cannot be reached"):
        folder("ftp://host/x").names()


def test_of_several_tasks_one_claims_an_output(here: Folder) -> None:
    staging = Staging(here)
    assert [staging.claim(7, "out=0") for _ in range(3)] == [True, False, False]
    staging.clear(7)
    assert staging.claim(7, "out=0")


def test_rows_are_put_aside_under_any_name(here: Folder) -> None:
    staging, rows = Staging(here), pa.table({"v": [1, 2]})
    staging.put_rows(7, "rejected", "year=2024/x", "part", rows)
    assert list(staging.rows(7, "rejected")) == [("year=2024/x", rows)]
