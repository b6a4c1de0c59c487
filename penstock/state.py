"""State of a process function: values of one key, stored in the job's checkpoint.

Declared as attributes of a `Process`, and used inside its methods, where they have the values of the current key.
"""

from __future__ import annotations

import dataclasses
from builtins import list as _list  # the name is a state's below
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Generic, TypeVar, cast, overload

from penstock.aggregates import Aggregator, state_type
from penstock.durations import Span, micros, span_text
from penstock.errors import BadSchema, BadState, BadValue
from penstock.schema import parse_type, type_of

__all__ = ["Aggregating", "List", "Map", "Reducing", "Value", "aggregating", "list", "map", "reducing", "value"]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_HELD: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "double": (float, int),
    "float": (float, int),
    "void": (),
    "binary": (bytes,),
    "timestamp": (datetime,),
    "timestamp_ntz": (datetime,),
    "date": (date,),
    "interval day to second": (timedelta,),
    "decimal": (Decimal, int),
    "array": (_list, tuple),
    "map": (dict,),
    "struct": (dict,),
    **dict.fromkeys(("bigint", "int", "smallint", "tinyint"), (int,)),
}


class Current:
    """The current key: its values, when they expire, and the time of the row or timer that uses them.

    `timed` is False where that time is not known: in a processing-time timer before the first watermark.
    """

    __slots__ = ("expiry", "time_us", "timed", "values")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.expiry: dict[str, int] = {}
        self.time_us = 0
        self.timed = True


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a state holds: its Spark type, the classes that it accepts, and a dataclass if it is one."""

    ddl: str
    classes: tuple[type, ...]
    made: type | None = None

    def check(self, value: Any, name: str) -> None:
        """Refuse what is of another type; anything may be None."""
        if not isinstance(value, self.classes) and value is not None:
            message = f"state '{name}' holds {self.ddl}, and was given {type(value).__name__} {value!r}"
            raise BadState(message, hint="change what is set, or the state's type")

    def packed(self, value: Any) -> Any:
        """Return a value as it is stored: plain data, which can be read without the user's classes."""
        return dataclasses.asdict(value) if self.made and value is not None else value

    def unpacked(self, value: Any) -> Any:
        """Return a stored value as the user set it."""
        return self.made(**value) if self.made and value is not None else value


class Handle:
    """A state as the methods of a process use it."""

    __slots__ = ("_at", "_classes", "_name", "_spec", "_ttl_us")

    def __init__(self, spec: Spec[Any], name: str, at: Current) -> None:
        self._spec, self._name, self._at = spec, name, at
        self._classes, self._ttl_us = spec.kinds[0].classes, spec.ttl_us

    def clear(self) -> None:
        """Delete it for this key."""
        self._at.values.pop(self._name, None)
        self._at.expiry.pop(self._name, None)

    def _held(self) -> Any:
        return self._at.values.get(self._name) if not self._ttl_us or self._alive() else None

    def _alive(self) -> bool:
        """Whether the row or timer at hand may see it: at its time it is younger than its TTL.

        It is not deleted here: rows that are out of order may still come, for which it is young enough.
        """
        at, name = self._at, self._name
        expires = at.expiry.get(name)
        if not at.timed or name not in at.values:
            return True
        if expires is None:
            # Written when no time was known, or by a version of the process that had no TTL: it counts from now on.
            at.expiry[name] = at.time_us + self._ttl_us
            return True
        return expires > at.time_us

    def _hold(self, value: Any) -> None:
        """Store what was changed; its age counts from the newest of all changes, so an older row never shortens it."""
        at, name = self._at, self._name
        if self._ttl_us and at.timed:
            expires = at.time_us + self._ttl_us
            at.expiry[name] = max(expires, at.expiry.get(name, expires)) if name in at.values else expires
        at.values[name] = value

    def _check(self, value: Any, kind: int = 0) -> None:
        self._spec.kinds[kind].check(value, self._name)


class Value(Handle, Generic[T]):
    """One value per key."""

    __slots__ = ()

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: T) -> T: ...
    def get(self, default: T | None = None) -> T | None:
        """Return it, or the default if nothing is set."""
        if self._ttl_us and not self._alive():
            return default
        return self._at.values.get(self._name, default)

    def set(self, value: T) -> None:
        """Set it for this key; None clears it."""
        if value is None:
            self.clear()
            return
        # On the path of every row, so only the check is here; the error is built elsewhere.
        if not isinstance(value, self._classes):
            self._check(value)
        at = self._at
        at.values[self._name] = value
        if self._ttl_us and at.timed:
            # A value is as old as the row that set it, whatever was there before.
            at.expiry[self._name] = at.time_us + self._ttl_us


class List(Handle, Sequence[T], Generic[T]):
    """A list per key."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: Any) -> Any:
        return (self._held() or [])[index]

    def __len__(self) -> int:
        return len(self._held() or ())

    def __iter__(self) -> Iterator[T]:
        return iter(self._held() or ())

    def get(self) -> _list[T]:
        """Return a copy."""
        return _list(self._held() or ())

    def append(self, value: T) -> None:
        """Add one at the end."""
        self.extend((value,))

    def extend(self, values: Iterable[T]) -> None:
        """Add some at the end."""
        more = _list(values)
        for one in more:
            self._check(one)
        held = self._held()
        if held is None:
            if not more:
                return
            held = []
        held += more
        self._hold(held)

    def set(self, values: Iterable[T]) -> None:
        """Replace the whole list."""
        self.clear()
        self.extend(values)


class Map(Handle, MutableMapping[K, V], Generic[K, V]):
    """A dictionary per key: used as Python's own is."""

    __slots__ = ()

    def __getitem__(self, key: K) -> V:
        return cast("V", (self._held() or {})[key])

    def __setitem__(self, key: K, value: V) -> None:
        self._check(key)
        self._check(value, 1)
        held = self._held()
        if held is None:
            held = {}
        held[key] = value
        self._hold(held)

    def __delitem__(self, key: K) -> None:
        held = self._held() or {}
        del held[key]
        # An empty map is no state: a key without any state is deleted.
        self._hold(held) if held else self.clear()

    def __iter__(self) -> Iterator[K]:
        return iter(self._held() or ())

    def __len__(self) -> int:
        return len(self._held() or ())

    def clear(self) -> None:
        """Delete all of it for this key."""
        Handle.clear(self)


class Reducing(Handle, Generic[T]):
    """One value per key, reduced from all that were added."""

    __slots__ = ()

    def get(self) -> T | None:
        """Return it, or None if nothing was added."""
        return cast("T | None", self._held())

    def add(self, value: T) -> None:
        """Add one: the function reduces the current value and the added one."""
        self._check(value)
        held = self._held()
        made = value if held is None else self._spec.fn(held, value)
        self._check(made)
        self._hold(made)


class Aggregating(Handle):
    """An aggregator's accumulator per key."""

    __slots__ = ()

    def get(self) -> Any:
        """Return the result of all that was added."""
        aggregator, held = self._spec.fn, self._held()
        return aggregator.finish(aggregator.start() if held is None else held)

    def add(self, *values: Any) -> None:
        """Add what `Aggregator.add` takes."""
        aggregator, held = self._spec.fn, self._held()
        self._hold(aggregator.add(aggregator.start() if held is None else held, *values))


H = TypeVar("H", bound=Handle)


class Spec(Generic[H]):
    """A declared state: its kind, its types, and its time to live after the last write."""

    def __init__(self, handle: type[H], kinds: tuple[Kind, ...], ttl: Span | None, fn: Any = None) -> None:
        self.handle, self.kinds, self.fn = handle, kinds, fn
        self.ttl_us = micros(ttl, "ttl") if ttl is not None else 0
        if ttl is not None and not self.ttl_us:
            message = f"ttl {ttl!r} is too short"
            raise BadValue(message, node=f"state.{self.kind}", hint='leave it out, or write "1h"')

    @property
    def kind(self) -> str:
        """The name of the kind."""
        return self.handle.__name__.lower()

    @property
    def meaning(self) -> str:
        """What stored values depend on: the kind and the types, but not the time to live."""
        return f"{self.kind} {', '.join(kind.ddl for kind in self.kinds)}"

    def __str__(self) -> str:
        return self.meaning + (f", ttl {span_text(self.ttl_us)}" if self.ttl_us else "")

    @overload
    def __get__(self, process: None, owner: type) -> Spec[H]: ...
    @overload
    def __get__(self, process: Any, owner: type) -> H: ...
    def __get__(self, process: Any, owner: type) -> Any:
        # In a running process, a handle in the instance has the same name and hides it.
        if process is None:
            return self
        message = f"state of {owner.__name__} is used outside of a key"
        raise BadState(message, hint="use it in on_row, on_rows or on_timer")

    def packed(self, held: Any) -> Any:
        """Return a value in memory as it is stored."""
        return self._each(held, Kind.packed)

    def unpacked(self, held: Any) -> Any:
        """Return a stored value as it is in memory."""
        return self._each(held, Kind.unpacked)

    @property
    def plain(self) -> bool:
        """Whether values are stored as they are in memory."""
        return not any(kind.made for kind in self.kinds)

    def _each(self, held: Any, change: Callable[[Kind, Any], Any]) -> Any:
        if self.handle is List:
            return [change(self.kinds[0], one) for one in held]
        if self.handle is Map:
            return {key: change(self.kinds[1], one) for key, one in held.items()}
        return change(self.kinds[0], held)


def value(kind: type[T] | str, *, ttl: Span | None = None) -> Spec[Value[T]]:
    """Declare one value per key.

    >>> print(value(bool, ttl="1h"))
    value boolean, ttl 1h
    """
    return Spec(Value, (_kind(kind, "value"),), ttl)


def list(kind: type[T] | str, *, ttl: Span | None = None) -> Spec[List[T]]:
    """Declare a list per key; its time to live counts from the last addition."""
    return Spec(List, (_kind(kind, "list"),), ttl)


def map(key: type[K] | str, kind: type[V] | str, *, ttl: Span | None = None) -> Spec[Map[K, V]]:
    """Declare a dictionary per key; its time to live counts from the last change."""
    keys = _kind(key, "map")
    if keys.made or keys.ddl.startswith(("array", "map", "struct")):
        message = f"the keys of a map cannot be {keys.ddl}"
        raise BadState(message, node="state.map", hint="use str, int or another plain type")
    return Spec(Map, (keys, _kind(kind, "map")), ttl)


def reducing(kind: type[T] | str, fn: Callable[[T, T], T], *, ttl: Span | None = None) -> Spec[Reducing[T]]:
    """Declare one value per key that a function makes of two at a time."""
    if not callable(fn):
        message = f"{fn!r} is not a function"
        raise BadState(message, node="state.reducing", hint="write reducing(float, max)")
    return Spec(Reducing, (_kind(kind, "reducing"),), ttl, fn)


def aggregating(aggregator: Aggregator, *, ttl: Span | None = None) -> Spec[Aggregating]:
    """Declare an aggregator's accumulator per key."""
    if not isinstance(aggregator, Aggregator):
        message = f"{aggregator!r} is not an aggregator"
        raise BadState(message, node="state.aggregating", hint="pass an instance of your subclass of ps.Aggregator")
    kind = Kind(state_type(aggregator.state), (object,))
    return Spec(Aggregating, (kind,), ttl, aggregator)


def _kind(kind: Any, what: str) -> Kind:
    try:
        ddl = parse_type(kind) if isinstance(kind, str) else type_of(kind)
    except BadSchema as error:
        message = f"{kind!r} is not a type that state can hold"
        hint = 'pass a Python type (bool, int, float, str, datetime, a dataclass), or a Spark type: "array<double>"'
        raise BadState(message, node=f"state.{what}", hint=hint) from error
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return Kind(ddl, (kind,), kind)
    return Kind(ddl, _HELD[ddl.partition("<")[0].partition("(")[0]])
