"""Jars are fetched once, whole, and missing ones say what to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import MissingPart, UnknownSetting
from penstock.spark.session.jars import fetch, jar_sets, jars

# A mirror on this disk: what Ivy does with it is what it does with Maven Central.
MIRROR = """\
<ivysettings>
  <settings defaultResolver="here"/>
  <resolvers><ibiblio name="here" m2compatible="true" root="{root}/"/></resolvers>
</ivysettings>
"""
POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
  <dependencies>
    <dependency><groupId>not.published</groupId><artifactId>anywhere</artifactId><version>1</version></dependency>
  </dependencies>
</project>
"""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "penstock" / "jars"


def mirror(folder: Path, coordinates: tuple[str, ...]) -> Path:
    """Put jars into a folder as Maven lays them out, and return the Ivy settings that point there."""
    for each in coordinates:
        group, name, version = each.split(":")
        place = folder.joinpath(*group.split("."), name, version)
        place.mkdir(parents=True)
        (place / f"{name}-{version}.jar").write_bytes(each.encode())
        (place / f"{name}-{version}.pom").write_text(POM.format(group, name, version))
    settings = folder / "settings.xml"
    settings.write_text(MIRROR.format(root=folder.as_uri()))
    return settings


def test_jars_that_were_not_fetched_say_what_to_run() -> None:
    with pytest.raises(MissingPart) as failed:
        jars("kafka")
    assert failed.value.hint == "penstock jars fetch kafka"


def test_an_unknown_set_names_those_that_there_are() -> None:
    with pytest.raises(UnknownSetting, match="did you mean 'kafka'"):
        jars("kafak")


def test_a_set_is_fetched_whole_from_a_mirror_and_kept(tmp_path: Path, cache: Path) -> None:
    settings = mirror(tmp_path / "mirror", jar_sets()["kafka"].jars)
    fetched = fetch("kafka", settings)
    assert fetched == jars("kafka") == jar_sets()["kafka"].files
    assert sorted(path.name for path in (cache / "kafka").iterdir()) == sorted(path.name for path in fetched)
    assert fetched[0].read_bytes().decode() == jar_sets()["kafka"].jars[0]
    assert [path.name for path in cache.parent.iterdir()] == ["jars"], "nothing half done is left"


def test_fetching_again_asks_nobody(tmp_path: Path) -> None:
    fetch("kafka", mirror(tmp_path / "mirror", jar_sets()["kafka"].jars))
    assert fetch("kafka", tmp_path / "nowhere.xml") == jars("kafka")


def test_a_jar_that_is_not_published_is_named_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    settings = mirror(tmp_path / "mirror", jar_sets()["kafka"].jars[1:])
    with pytest.raises(MissingPart, match=r"spark-sql-kafka-0-10_2\.13;4\.2\.0: not found") as failed:
        fetch("kafka", settings)
    assert failed.value.transient
    assert not list((cache / "kafka").iterdir())
