from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.connectors.tables import connection as tables
from penstock.connectors.topics import client_errors as kafka
from penstock.connectors.topics.connection import Connection, origin
from penstock.errors import SettingsError, UnknownSetting
from penstock.settings import Settings, cores, server_address, unread


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder, and an environment without our variables."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("PENSTOCK_"):
            monkeypatch.delenv(name)


def toml(text: str) -> None:
    Path("penstock.toml").write_text(text)


def refused(profile: str | None = None, **arguments: object) -> str:
    with pytest.raises(UnknownSetting) as caught:
        Settings.load(profile, **arguments)
    return str(caught.value)


def test_without_anything_the_defaults_hold() -> None:
    assert Settings.load() == Settings()
    assert Settings().master == f"local[{cores()},4]"
    assert (Settings().checkpoints, Settings().files, Settings().lane) == (
        ".penstock/checkpoints",
        ".",
        "auto",
    )


def test_argument_comes_before_environment_before_profile_before_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toml(
        '[settings]\nfiles = "file"\nlog = "file"\nregistry = "file"\ncheckpoints = "file"\n'
        '[profiles.prod]\nlog = "profile"\nregistry = "profile"\ncheckpoints = "profile"\n'
    )
    monkeypatch.setenv("PENSTOCK_REGISTRY", "environment")
    monkeypatch.setenv("PENSTOCK_CHECKPOINTS", "environment")
    found = Settings.load("prod", checkpoints="argument", files=None)
    assert (found.files, found.log, found.registry, found.checkpoints) == (
        "file",
        "profile",
        "environment",
        "argument",
    )


def test_tables_are_merged_key_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    toml('[settings.connections]\ncrm = "a"\nlog = "b"\n[profiles.prod.connections]\ncrm = "c"\n')
    monkeypatch.setenv("PENSTOCK_CONNECTIONS", "orders=d")
    assert Settings.load("prod", connections={"log": "e"}).connections == {
        "crm": "c",
        "log": "e",
        "orders": "d",
    }


def test_spark_options_are_read_from_dotted_keys_and_from_one_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toml('[settings.spark]\nspark.sql.shuffle.partitions = 4\nspark.ui.enabled = true\n"spark.a" = "x"\n')
    monkeypatch.setenv("PENSTOCK_SPARK", "spark.a=1,2,spark.b=k=v")
    expected = {
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "true",
        "spark.a": "1,2",
        "spark.b": "k=v",
    }
    assert Settings.load().spark == expected


def test_the_profile_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    toml('[profiles.prod]\nstate = "rocksdb"\n')
    monkeypatch.setenv("PENSTOCK_PROFILE", "prod")
    assert Settings.load().state == "rocksdb"


def test_a_number_is_read_from_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PARALLELISM", "3")
    assert Settings.load().master == "local[3,4]"
    assert Settings.load(spark_master="spark://host:7077").master == "spark://host:7077"


def test_variables_that_steer_the_program_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    monkeypatch.setenv("PENSTOCK_SERVER", "http://127.0.0.1:8081")
    monkeypatch.setenv("PENSTOCK_TOKEN", "pst_x")
    monkeypatch.setenv("PENSTOCK_LOG", "")
    assert Settings.load() == Settings()


def test_an_unknown_key_names_the_file_the_section_and_the_choices() -> None:
    toml("[settings]\nparalellism = 2\n")
    said = refused()
    assert said.startswith("penstock.toml [settings]: unknown setting 'paralellism'\n  settings: log, spark_master,")
    assert said.endswith("did you mean 'parallelism'?")


def test_the_address_of_the_job_manager_is_in_the_file_and_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_address() is None
    toml('[settings]\nserver = "http://a:1"\nparallelism = 2\n[profiles.prod]\nserver = "http://b:2"\n')
    assert Settings.load("prod") == Settings(parallelism=2)
    assert (server_address(), server_address("prod")) == ("http://a:1", "http://b:2")
    monkeypatch.setenv("PENSTOCK_SERVER", "http://c:3")
    assert server_address("prod") == "http://c:3"


def test_an_address_that_is_no_text_is_refused() -> None:
    toml("[settings]\nserver = 1\n")
    with pytest.raises(UnknownSetting, match="server = 1 is not a string"):
        server_address()


def test_an_unknown_section_is_refused() -> None:
    toml("[setings]\n")
    assert refused().startswith("penstock.toml: unknown section 'setings'")
    toml("settings = 1\n")
    assert "penstock.toml [settings]: 1 is not a section" in refused()


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SPARK_MASTR", "x")
    assert "did you mean 'PENSTOCK_SPARK_MASTER'?" in refused()


def test_an_unknown_argument_is_refused() -> None:
    assert refused(sate="memory").startswith("Settings.load: unknown setting 'sate'")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('state = "disk"', "state = 'disk' is not a choice\n  choices: memory, rocksdb"),
        ("parallelism = 0", "parallelism = 0 is not a whole number from 1"),
        ("parallelism = true", "parallelism = True is not a whole number from 1"),
        ('parallelism = "two"', "parallelism = 'two' is not a whole number from 1"),
        ("files = 3", "files = 3 is not a string"),
        ('log = ""', "log = '' is not a string"),
        ("connections = 3", "connections = 3 is not a table of strings"),
        ("connections.crm = [1]", "connections.crm = [1] is not a string"),
        ('spark = "a"', "spark = 'a' is not \"key=value,key=value\""),
    ],
)
def test_a_wrong_value_names_the_file_the_key_and_what_is_expected(line: str, said: str) -> None:
    toml(f"[settings]\n{line}\n")
    assert f"penstock.toml [settings]: {said}" in refused()


@pytest.mark.parametrize(
    "text",
    [
        '[profiles]\nprod = "postgresql://ada:Hunter-2@db/shop"',
        'settings = "kafka://ada:Hunter-2@a:1"',
        '[settings]\nstate = "postgresql://ada:Hunter-2@db/shop"',
        '[settings]\nkafka_reader = "kafka://ada:Hunter-2@a:1"',
        '[settings]\n"postgresql://ada:Hunter-2@db/shop" = 1',
        '"postgresql://ada:Hunter-2@db/shop" = 1',
        '[settings.spark]\n"spark.x.secret.key" = [12345678]',
        '[settings.spark]\n"spark.x.password" = ["Hunter-2"]',
        '[settings.spark]\n"spark.x" = [{ password = ["Hunter-2", 12345678] }]',
    ],
)
def test_an_error_shows_no_secret_that_is_in_the_wrong_place(text: str) -> None:
    toml(text)
    for profile in (None, "prod"):
        said = refused(profile) if profile or "profiles" not in text else ""
        assert "Hunter" not in said
        assert "12345678" not in said


def test_an_error_shows_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", "postgresql://ada:Hunter-2@db")
    assert "PENSTOCK_STATE = 'postgresql://ada:***@db' is not a choice" in refused()


def test_a_wrong_variable_is_named_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LANE", "native")
    assert refused().startswith("environment: PENSTOCK_LANE = 'native' is not a choice\n  choices: auto, spark")


def test_settings_made_by_hand_are_checked_too() -> None:
    with pytest.raises(UnknownSetting, match="choices: memory, rocksdb"):
        Settings(state="disk")  # type: ignore[arg-type]


def test_a_profile_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert "penstock.toml not found in" in refused("prod")
    toml("[profiles.prod]\n[profiles.test]\n")
    assert refused("prd") == (
        "penstock.toml: unknown profile 'prd'\n  profiles there: prod, test      did you mean 'prod'?"
    )


def test_a_broken_file_is_refused_with_the_place() -> None:
    toml("[settings]\nfiles = oops\n")
    assert "penstock.toml is not TOML: Invalid value (at line 2" in refused()


def test_a_checkpoint_has_an_interval_and_a_retention() -> None:
    made = Settings(checkpoint_interval="10s", checkpoint_retention="7")  # type: ignore[arg-type]
    assert (made.checkpoint_interval, made.checkpoint_retention) == ("10s", 7)
    assert (Settings().checkpoint_interval, Settings().checkpoint_retention) == (None, 100)
    with pytest.raises(UnknownSetting, match="checkpoint_interval = 'soon' is not a span of time"):
        Settings(checkpoint_interval="soon")
    with pytest.raises(UnknownSetting, match="checkpoint_retention = 0 is not a whole number from 1"):
        Settings(checkpoint_retention=0)


def test_what_is_written_and_settings_made_in_code_do_not_read_is_named_in_hints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = "start one with: penstock log serve"
    default = Connection.parse("127.0.0.1:1", origin(Settings(epoch_rows=100)))
    assert default.remedy == f"{start}; or set PENSTOCK_LOG to where the log is"
    monkeypatch.setenv("PENSTOCK_LOG", "far:9092")
    how = "which Settings(...) in code does not read: pass settings=Settings.load(...) instead"
    assert default.remedy == f"PENSTOCK_LOG has log, {how}; or {start}"
    loaded = Settings.load(epoch_rows=100)
    assert (loaded.log, loaded.epoch_rows, unread(loaded, "log")) == ("far:9092", 100, "")
    toml('[settings.connections]\nshop = "sqlite:///shop.db"\n')
    assert unread(Settings(), "connections", "shop") == f"penstock.toml has connections.shop, {how}"
    for look_up in (kafka.resolve, tables.resolve):
        with pytest.raises(SettingsError, match=r"penstock.toml has connections.shop"):
            look_up("shop", Settings())
