"""The archive that executors on a cluster import from: each module with its bytecode."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.session import code_shipping

IMPORTS = """
import beside, package
print(beside.__file__, beside.value, package.value)
try:
    import package.template
except SyntaxError as error:
    print(error.filename)
"""


def imported(archive: Path, folder: Path) -> list[str]:
    """Return what a process prints that finds the archive and nothing else of the user's."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORTS],
        env={"PYTHONPATH": str(archive)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def written(folder: Path) -> list[Path]:
    """Write a module, and a package with a file that is not Python."""
    package, beside = folder / "package", folder / "beside.py"
    package.mkdir()
    (package / "__init__.py").write_text("value = 2")
    (package / "template.py").write_text("def {name}():")
    (package / "null.py").write_bytes(b"x = 1\0")
    beside.write_text("value = 1")
    return [package, beside]


def test_workers_import_bytecode_and_see_the_source_of_what_cannot_be_compiled(tmp_path: Path) -> None:
    archive = code_shipping._archive(written(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    assert imported(archive, tmp_path / "elsewhere") == [
        f"{archive}/beside.pyc",
        "1",
        "2",
        f"{archive}/package/template.py",
    ]


def test_a_worker_with_another_python_compiles_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_shipping, "MAGIC_NUMBER", b"\0\0\r\n")
    paths = written(tmp_path)
    (paths[0] / "more.py").write_text("")  # an archive is named after what it holds, and the other test has made one
    archive = code_shipping._archive(paths)
    (tmp_path / "elsewhere").mkdir()
    assert imported(archive, tmp_path / "elsewhere")[0] == f"{archive}/beside.py"
