"""Settings of a run: one typed object, read from arguments, environment, `penstock.toml` and defaults."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from penstock.durations import micros
from penstock.errors import BadValue, UnknownSetting, choices
from penstock.masking import masked_options, masked_text

FILE = "penstock.toml"
PREFIX = "PENSTOCK_"
SHORTEST_BATCH_US = 5_000_000
RETENTION = 100

State = Literal["memory", "rocksdb"]
Lane = Literal["auto", "spark"]
Reader = Literal["penstock", "spark"]


@dataclass(frozen=True)
class Settings:
    """Where a pipeline runs, and on what.

    log           address of the event log; None is the embedded one
    spark_master  Spark's master; None is `local[N,4]` with N the parallelism
    checkpoints   folder of the checkpoints of all pipelines: a path, s3://BUCKET/PATH, or any URL of Hadoop's
    checkpoint_interval  the shortest time between two epochs, such as "10s"; None starts the next one at once
    checkpoint_retention  how many epochs are kept to restore from
    savepoints    folder of savepoints
    files         folder that relative paths of sources and sinks start from
    registry      address of the schema registry
    connections   addresses by the name that pipelines call them
    state         Spark's state store: "memory" or "rocksdb"
    lane          "auto" lets the native lane take what it can, "spark" leaves all to Spark
    kafka_reader  who reads topics: "penstock", or "spark" for Spark's connector (`penstock jars fetch kafka`)
    state_partitions number of state partitions; None is that of the checkpoint, at first the parallelism
    state_buckets number of buckets of keyed state, the most tasks that one node can have; a checkpoint keeps its first
    parallelism   how many tasks run at once; None is the number of cores
    epoch_rows    rows that an epoch reads of each source; None adapts to how long epochs take
    epoch_target  target duration of an epoch; epochs that take longer read less
    max_lag_rows  with overload="drop", consumer lag in rows, above which the oldest rows are dropped
    realtime_batch how often pace="realtime" commits its offsets, from "5s": a crash repeats what came since
    spark         further configuration of Spark, which wins over Penstock's own

    >>> Settings(parallelism=2).master
    'local[2,4]'
    """

    log: str | None = field(default=None, repr=False)
    spark_master: str | None = None
    checkpoints: str = ".penstock/checkpoints"
    checkpoint_interval: str | None = None
    checkpoint_retention: int = RETENTION
    savepoints: str = ".penstock/savepoints"
    files: str = "."
    registry: str | None = None
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)
    state: State = "memory"
    lane: Lane = "auto"
    kafka_reader: Reader = "penstock"
    state_partitions: int | None = None
    state_buckets: int | None = None  # the default of new checkpoints is BUCKETS in plan/operators/node.py
    parallelism: int | None = None
    epoch_rows: int | None = None
    epoch_target: str = "5s"
    max_lag_rows: int = 1_000_000
    realtime_batch: str = "1m"
    spark: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in NAMES:
            object.__setattr__(self, name, _READERS[name](name, getattr(self, name), "Settings"))

    def __repr__(self) -> str:
        # Addresses of logs and connections are left out whole: most of them hold a login.
        shown = {part.name: getattr(self, part.name) for part in fields(self) if part.repr}
        shown["spark"] = masked_options(self.spark)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in masked_options(shown).items())})"

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        return self.parallelism or cores()

    @property
    def master(self) -> str:
        """Spark's master; a local one tries a failed task again, which plain `local[N]` never does."""
        return self.spark_master or f"local[{self.cores},4]"

    @classmethod
    def load(cls, profile: str | None = None, **arguments: Any) -> Settings:
        """Read the settings: arguments, then PENSTOCK_* variables, then `penstock.toml`, then defaults.

        `profile` lays `[profiles.NAME]` of the file over its `[settings]`; without it PENSTOCK_PROFILE may
        name one. An argument that is None counts as not given. Connections and Spark options are merged
        key by key; every other setting is replaced.
        """
        profile = profile or os.environ.get(f"{PREFIX}PROFILE") or None
        merged: dict[str, Any] = {}
        layers = [*_from_file(Path(FILE), profile), _from_environment(os.environ), _from_arguments(arguments)]
        for layer in layers:
            for name, value in layer.items():
                merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
        return cls(**merged)


def unread(settings: Settings, name: str, key: str = "") -> str:
    """Return, for a hint, where a setting is written that settings made in code lack; nothing if it is nowhere."""
    try:
        loaded = Settings.load()
    except UnknownSetting:
        return ""
    if _has(settings, name, key) or not _has(loaded, name, key):
        return ""
    given = _from_environment(os.environ).get(name)
    where = PREFIX + name.upper() if given is not None and (not key or key in given) else FILE
    what = f"{name}.{key}" if key else name
    return f"{where} has {what}, which Settings(...) in code does not read: pass settings=Settings.load(...) instead"


def _has(settings: Settings, name: str, key: str) -> bool:
    value = getattr(settings, name)
    return key in value if key else value is not None


NAMES = tuple(part.name for part in fields(Settings))
# Variables with our prefix that are not settings: they control the program, its tests and its benchmarks.
_NO_SETTINGS = re.compile(rf"{PREFIX}(DEBUG|PROFILE|PASSWORD|RUN|SERVER|TOKEN|SECRET_.*|TEST_.*|BENCH_.*)")
# A key of the file that is no setting of a pipeline: the address of the job manager.
_SERVER = "server"


def server_address(profile: str | None = None) -> str | None:
    """Return the address of the job manager: PENSTOCK_SERVER, then `server` of the profile or of [settings]."""
    if given := os.environ.get(f"{PREFIX}SERVER"):
        return given
    sections = _sections(Path(FILE), profile or os.environ.get(f"{PREFIX}PROFILE") or None)
    found = [_text(_SERVER, section[_SERVER], where) for where, section in sections if _SERVER in section]
    return found[-1] if found else None


def cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _from_file(path: Path, profile: str | None) -> list[dict[str, Any]]:
    sections = _sections(path, profile)
    return [_layer({k: v for k, v in section.items() if k != _SERVER}, where) for where, section in sections]


def _sections(path: Path, profile: str | None) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the sections of the file that count, the later over the earlier, each with its name."""
    if not path.is_file():
        if profile:
            message = f"profile '{profile}': {FILE} not found in {Path.cwd()}"
            raise UnknownSetting(message, hint=f"write one with a section [profiles.{profile}]")
        return []
    content = _toml(path)
    _known(content, ("settings", "profiles"), FILE, "sections")
    found = [_section(content.get("settings", {}), f"{FILE} [settings]")]
    profiles = content.get("profiles", {})
    if profile:
        if profile not in profiles:
            message = f"{FILE}: unknown profile '{profile}'"
            raise UnknownSetting(message, hint=choices("profiles there", profiles, profile))
        found.append(_section(profiles[profile], f"{FILE} [profiles.{profile}]"))
    return found


def _section(given: object, where: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(given, Mapping):
        message = f"{where}: {given!r} is not a section"
        raise UnknownSetting(masked_text(message), hint=choices("settings", NAMES))
    return where, given


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{path} is not TOML: {error}"
        raise UnknownSetting(message, hint='a line reads key = "value", under [settings] or [profiles.NAME]') from error


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    given = {name: value for name, value in env.items() if name.startswith(PREFIX) and value}
    given = {name: value for name, value in given.items() if not _NO_SETTINGS.fullmatch(name)}
    names = {PREFIX + name.upper(): name for name in NAMES}
    _known(given, names, "environment", "variables")
    return {names[key]: _READERS[names[key]](key, value, "environment") for key, value in given.items()}


def _from_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return _layer({name: value for name, value in arguments.items() if value is not None}, "Settings.load")


def _layer(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    _known(given, NAMES, where, "settings")
    return {name: _READERS[name](name, value, where) for name, value in given.items()}


def _known(given: Mapping[str, Any], valid: Collection[str], where: str, label: str) -> None:
    for name in given:
        if name not in valid:
            message = f"{where}: unknown {label.removesuffix('s')} '{name}'"
            raise UnknownSetting(masked_text(message), hint=choices(label, valid, name))


def _wrong(name: str, value: object, where: str, expected: str) -> UnknownSetting:
    """Return the error of a value that is wrong; it may be a secret in the wrong place, or of a wrong kind."""
    shown = masked_options({name: value})[name]
    return UnknownSetting(masked_text(f"{where}: {name} = {shown!r} is not {expected}"))


def _text(name: str, value: object, where: str) -> str:
    if not isinstance(value, (str, Path)) or not str(value):
        raise _wrong(name, value, where, "a string")
    return str(value)


def _maybe_text(name: str, value: object, where: str) -> str | None:
    return None if value is None else _text(name, value, where)


def _one_of(*valid: str) -> Callable[[str, object, str], str]:
    def read(name: str, value: object, where: str) -> str:
        if value not in valid:
            message = f"{where}: {name} = {masked_text(repr(value))} is not a choice"
            raise UnknownSetting(message, hint=choices("choices", valid, str(value)))
        return str(value)

    return read


def _maybe_count(name: str, value: object, where: str) -> int | None:
    if value is None:
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise _wrong(name, value, where, "a whole number from 1")
    return number


def _batch(name: str, value: object, where: str) -> str:
    text = _text(name, value, where)
    try:
        length = micros(text, name)
    except BadValue as error:
        raise _wrong(name, value, where, 'a span of time, such as "1m"') from error
    if length < SHORTEST_BATCH_US:
        raise _wrong(name, value, where, '"5s" or more: Spark refuses shorter ones')
    return text


def _target(name: str, value: object, where: str) -> str:
    text = _maybe_span(name, value, where)
    if text is None or not micros(text):
        raise _wrong(name, value, where, 'a span of time, such as "5s"')
    return text


def _count(name: str, value: object, where: str) -> int:
    number = _maybe_count(name, value, where)
    if number is None:
        raise _wrong(name, value, where, "a whole number from 1")
    return number


def _maybe_span(name: str, value: object, where: str) -> str | None:
    text = _maybe_text(name, value, where)
    try:
        micros(text, name) if text is not None else None
    except BadValue as error:
        raise _wrong(name, value, where, 'a span of time, such as "10s"') from error
    return text


def _mapping(name: str, value: object, where: str) -> dict[str, str]:
    if isinstance(value, str):
        return _pairs(name, value, where)
    if not isinstance(value, Mapping):
        raise _wrong(name, value, where, "a table of strings")
    return _flat(name, value, where)


def _pairs(name: str, text: str, where: str) -> dict[str, str]:
    # A comma only separates where a key follows: values such as local[2,4] hold commas too.
    parts = [part.partition("=") for part in re.split(r",(?=[\w.-]+=)", text)]
    if any(not (key.strip() and equals) for key, equals, _ in parts):
        raise _wrong(name, text, where, '"key=value,key=value"')
    return {key.strip(): value.strip() for key, _, value in parts}


def _flat(name: str, table: Mapping[str, object], where: str) -> dict[str, str]:
    """Join nested keys: TOML reads `spark.sql.x = 1` as three tables."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{rest}": text for rest, text in _flat(f"{name}.{key}", value, where).items()}
        elif isinstance(value, bool):
            found[key] = str(value).lower()
        elif isinstance(value, (str, int, float)):
            found[key] = str(value)
        else:
            full = f"{name}.{key}"
            raise _wrong(full, value, where, "a string")
    return found


_READERS: dict[str, Callable[[str, Any, str], Any]] = {
    "log": _maybe_text,
    "spark_master": _maybe_text,
    "checkpoints": _text,
    "checkpoint_interval": _maybe_span,
    "checkpoint_retention": _count,
    "savepoints": _text,
    "files": _text,
    "registry": _maybe_text,
    "connections": _mapping,
    "state": _one_of("memory", "rocksdb"),
    "lane": _one_of("auto", "spark"),
    "kafka_reader": _one_of("penstock", "spark"),
    "state_partitions": _maybe_count,
    "state_buckets": _maybe_count,
    "parallelism": _maybe_count,
    "epoch_rows": _maybe_count,
    "epoch_target": _target,
    "max_lag_rows": _count,
    "realtime_batch": _batch,
    "spark": _mapping,
}
