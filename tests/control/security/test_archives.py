"""Zip files that must not be unpacked, each with its reason; and those that must."""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.control.security.archives import Limits, unpack
from penstock.errors import BadArchive

KIB, MIB = 1024, 1024**2


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    return zipped_entries([(zipfile.ZipInfo(name), content) for name, content in files.items()], method)


def zipped_entries(entries: list[tuple[zipfile.ZipInfo, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for info, content in entries:
            archive.writestr(info, content, method)
    return written.getvalue()


def special(name: str, kind: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | 0o777) << 16
    return info


parts = st.from_regex(r"[a-z][a-z0-9_]{0,7}", fullmatch=True)
paths = st.lists(parts, min_size=1, max_size=4).map(lambda names: "/".join(names) + ".py")


@given(st.dictionaries(paths, st.binary(max_size=2_000), min_size=1, max_size=10))
@settings(max_examples=50, deadline=None)
def test_a_folder_is_unpacked_as_it_was(files: dict[str, bytes]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        written = unpack(zipped(files), root)
        assert {str(path.relative_to(root)): path.read_bytes() for path in written} == files
        assert {path for path in root.rglob("*") if path.is_file()} == set(written)


@pytest.mark.parametrize("names", [["a", "a/"], ["a/", "a"], ["A/", "a"], ["a", "A/b/"], ["A/x.py", "a/"]])
def test_a_file_and_a_folder_cannot_have_the_same_name(names: list[str], tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="the same name"):
        unpack(zipped({**dict.fromkeys(names, b""), "job.py": b"x"}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_may_be_an_entry_of_its_own(tmp_path: Path) -> None:
    unpack(zipped({"a/": b"", "a/b/": b"", "a/b/job.py": b"x"}), tmp_path)
    assert (tmp_path / "a" / "b" / "job.py").read_bytes() == b"x"


pieces = st.sampled_from(["..", ".", "", "a", "A", "b", "\\", "C:", "\0", "é", "e\u0301", " ", "nul\n"])
evil = st.lists(pieces, min_size=1, max_size=4).map("/".join).filter(bool)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@given(st.lists(evil, min_size=1, max_size=3, unique=True))
@example(["a", "a/"])
@example(["a/", "a"])
@settings(max_examples=150, deadline=None)
def test_nothing_is_ever_written_outside_of_the_folder(names: list[str]) -> None:
    with TemporaryDirectory() as outside:
        root = Path(outside) / "root" / "inner"
        root.mkdir(parents=True)
        try:
            written = unpack(zipped(dict.fromkeys(names, b"x")), root)
        except BadArchive:
            written = []
        everything = [path for path in Path(outside).rglob("*") if not path.is_dir()]
        assert all(path.resolve().is_relative_to(root.resolve()) for path in [*written, *everything])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/etc/passwd", "absolute"),
        ("C:/x.py", "absolute"),
        ("..\\x.py", "absolute"),
        ("../x.py", "leads out"),
        ("a/../../x.py", "leads out"),
        ("a/../x.py", "leads out"),
        ("a//x.py", "empty part"),
        ("./x.py", "empty part"),
        ("a\n.py", "characters"),
        ("a/b?.py", "characters"),
        ("a /x.py", "blanks"),
        ("a./x.py", "at its end"),
        ("a/" * 40 + "x.py", "too deep"),
        ("a" * 300 + ".py", "too long"),
    ],
)
def test_a_path_that_is_not_plain_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(BadArchive, match=reason):
        unpack(zipped({"job.py": b"", name: b"x"}), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [("job.py", "Job.py"), ("a/x.py", "A/y.py"), ("a", "a/x.py"), ("A", "a/x.py"), ("é.py", "e\u0301.py"), ("ß", "SS")],
)
def test_names_that_clash_on_some_file_system_are_refused(tmp_path: Path, first: str, second: str) -> None:
    with pytest.raises(BadArchive, match="same name"):
        unpack(zipped({first: b"1", second: b"2"}), tmp_path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    twice = [(zipfile.ZipInfo("job.py"), content) for content in (b"1", b"2")]
    with pytest.raises(BadArchive, match="same name"):
        unpack(zipped_entries(twice), tmp_path)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(stat.S_IFLNK, "is a link"), (stat.S_IFIFO, "neither"), (stat.S_IFCHR, "neither"), (stat.S_IFSOCK, "neither")],
)
def test_only_files_and_folders_are_unpacked(tmp_path: Path, kind: int, reason: str) -> None:
    entries = [(zipfile.ZipInfo("job.py"), b""), (special("secrets", kind), b"/etc/passwd")]
    with pytest.raises(BadArchive, match=reason):
        unpack(zipped_entries(entries), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folders_and_modes_of_an_archive(tmp_path: Path) -> None:
    entries = [(special("package/", stat.S_IFDIR), b""), (special("package/run.py", stat.S_IFREG | stat.S_ISUID), b"x")]
    (path,) = unpack(zipped_entries(entries), tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path == tmp_path / "package" / "run.py"


def test_a_link_that_is_already_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "job.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(OSError):
        unpack(zipped({"job.py": b"x"}), tmp_path / "folder")
    assert not (tmp_path / "outside.py").exists()


def test_an_archive_that_is_too_large_is_refused(tmp_path: Path) -> None:
    data = zipped({"job.py": os.urandom(10 * KIB)})
    with pytest.raises(BadArchive, match="bytes"):
        unpack(data, tmp_path, Limits(packed_bytes=5 * KIB))


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    data = zipped({"a": bytes(60 * KIB), "b": bytes(60 * KIB)})
    with pytest.raises(BadArchive, match=r"more than 102400 bytes"):
        unpack(data, tmp_path, Limits(unpacked_bytes=100 * KIB))
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_is_packed_too_well_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="200 times"):
        unpack(zipped({"zeros": bytes(4 * MIB)}), tmp_path)


def test_an_archive_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    """Its directory says 10 bytes, and the stream has four million."""
    data = bytearray(zipped({"zeros": bytes(4 * MIB)}))
    size = (4 * MIB).to_bytes(4, "little")
    assert data.count(size) == 2
    with pytest.raises(BadArchive):
        unpack(bytes(data.replace(size, (10).to_bytes(4, "little"))), tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10


def test_an_archive_with_too_many_files_is_refused(tmp_path: Path) -> None:
    data = zipped({f"f{number}.py": b"" for number in range(11)})
    assert len(unpack(data, tmp_path / "allowed", Limits(files=11))) == 11
    with pytest.raises(BadArchive, match="10 entries"):
        unpack(data, tmp_path / "refused", Limits(files=10))


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x05\x06" + bytes(18), zipped({"a.py": b"x" * 100})[:-30]])
def test_what_is_no_zip_file_with_files_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadArchive):
        unpack(data, tmp_path)


@given(st.binary(max_size=300), st.integers(0, 200))
@settings(max_examples=150, deadline=None)
def test_a_damaged_archive_is_a_bad_archive_and_no_other_error(noise: bytes, place: int) -> None:
    good = zipped({"job.py": b"import penstock\n" * 20, "a/b.py": b"x"})
    damaged = good[:place] + noise + good[place + len(noise) :]
    with TemporaryDirectory() as folder:
        with suppress(BadArchive):
            unpack(damaged, Path(folder) / "inner")
        assert {path.name for path in Path(folder).iterdir()} <= {"inner"}


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped({"job.py": b"x"}))
    directory = data.index(b"PK\x01\x02")
    data[directory + 8] |= 1
    with pytest.raises(BadArchive, match="encrypted"):
        unpack(bytes(data), tmp_path)


def test_another_compression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArchive, match="deflate"):
        unpack(zipped({"job.py": b"x"}, zipfile.ZIP_LZMA), tmp_path)
