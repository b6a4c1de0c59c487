"""Jars that Spark's wheel lacks: fetched once from Maven Central into the user's cache.

Ivy fetches them, which comes with Spark and needs nothing but Java: no Spark is started, no Maven installed.
"""

from __future__ import annotations

import subprocess
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from penstock.errors import MissingPart, UnknownSetting, choices
from penstock.spark.session.java import cache_folder, find_java

# Ivy names a jar's type after how it was packaged.
_TYPES = ("jar", "bundle")
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True)
class JarSet:
    """Jars that belong together; each is GROUP:NAME:VERSION."""

    name: str
    purpose: str
    jars: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """Their folder in the cache."""
        return cache_folder() / "jars" / self.name

    @property
    def files(self) -> list[Path]:
        """The path of each jar, fetched or not."""
        return [self.folder / file_name(jar) for jar in self.jars]

    @property
    def fetched(self) -> bool:
        """Whether all of them were fetched."""
        return all(file.is_file() for file in self.files)


@cache
def jar_sets() -> dict[str, JarSet]:
    """Return the sets that can be fetched, by name."""
    listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {name: JarSet(name, each["purpose"], tuple(each["jars"])) for name, each in listed.items()}


def jars(name: str) -> list[Path]:
    """Return the files of a set, for `spark.jars`; raises MissingPart if they were not fetched."""
    wanted = _jar_set(name)
    if not wanted.fetched:
        message = f"the jars '{name}' are not on this machine: {wanted.purpose}"
        raise MissingPart(message, hint=f"penstock jars fetch {name}")
    return wanted.files


def fetch(name: str, settings: Path | None = None) -> list[Path]:
    """Fetch a set unless it is there, and return its files."""
    wanted = _jar_set(name)
    if not wanted.fetched:
        wanted.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="jars-") as fresh:
            retrieve(wanted.jars, Path(fresh), settings=settings)
            for file in wanted.files:
                Path(fresh, file.name).replace(file)
    return wanted.files


def retrieve(
    wanted: Iterable[str], folder: Path, *, dependencies: bool = False, settings: Path | None = None
) -> list[Path]:
    """Put jars of Maven Central into a folder, with all that they depend on if asked; return the files.

    `settings` is an Ivy settings file, for those who reach Maven Central by a mirror. Raises MissingPart with
    what could not be had.
    """
    wanted = list(wanted)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".ivy-") as work:
        described = Path(work, "ivy.xml")
        described.write_text(_description(wanted, "default" if dependencies else "master"))
        command = [find_java().program, "-jar", _ivy(), "-warn", "-ivy", described, "-cache", work]
        command += ["-types", *_TYPES, "-retrieve", folder / _PATTERN]
        command += ["-settings", settings] if settings else []
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode or not all((folder / file_name(jar)).is_file() for jar in wanted):
        raise _not_fetched(wanted, done.stdout + done.stderr)
    return sorted(folder.glob("*.jar"))


def file_name(jar: str) -> str:
    """Return what a jar's file is called.

    >>> file_name("org.apache.kafka:kafka-clients:3.9.1")
    'kafka-clients-3.9.1.jar'
    """
    _group, name, version = jar.split(":")
    return f"{name}-{version}.jar"


def _jar_set(name: str) -> JarSet:
    if name not in jar_sets():
        message = f"there is no set of jars '{name}'"
        raise UnknownSetting(message, hint=choices("sets", jar_sets(), name))
    return jar_sets()[name]


def _ivy() -> Path:
    package = find_spec("pyspark")
    found = sorted(Path(package.origin).parent.glob("jars/ivy-*.jar")) if package and package.origin else []
    if not found:
        message = "Ivy, which fetches jars, is not there: it comes with PySpark"
        raise MissingPart(message, hint='pip install "pyspark==4.3.*"')
    return found[0]


def _description(wanted: Iterable[str], configuration: str) -> str:
    lines = []
    for jar in wanted:
        group, name, version = map(quoteattr, jar.split(":"))
        lines.append(f'<dependency org={group} name={name} rev={version} conf="default->{configuration}"/>')
    return _IVY_FILE.format(dependencies="\n    ".join(lines))


_IVY_FILE = """\
<ivy-module version="2.0">
  <info organisation="penstock" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    {dependencies}
  </dependencies>
</ivy-module>
"""


def _not_fetched(wanted: list[str], said: str) -> MissingPart:
    lines = [line.strip(" :\t") for line in said.splitlines()]
    reasons = [line for line in lines if "not found" in line or "Exception" in line or "refused" in line]
    message = f"could not fetch {', '.join(wanted)}: {'; '.join(dict.fromkeys(reasons[:3])) or lines[-1:]}"
    hint = "is Maven Central reached from here? Behind a mirror: penstock jars fetch --ivy-settings FILE"
    return MissingPart(message, hint=hint, transient=True)
