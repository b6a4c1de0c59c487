from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a driver reports it: `type` is the class of a PenstockError, `exit_code` that of the commands."""

    type: str
    message: str
    hint: str | None = None
    transient: bool = False
    exit_code: int | None = None

    @property
    def is_mistake(self) -> bool:
        """Whether every start fails in the same way: the pipeline, the settings or the checkpoint is wrong."""
        return self.exit_code == 2 and not self.transient

    @property
    def is_nothing_to_save(self) -> bool:
        """Whether a savepoint failed because no epoch is committed yet."""
        return self.type == "CheckpointMissing"

    @property
    def summary(self) -> str:
        r"""The cause in one line.

        >>> Failure("NoBroker", "no broker at localhost:9092\nconnection refused").summary
        'NoBroker: no broker at localhost:9092'
        """
        lines = self.message.strip().splitlines()
        return f"{self.type}: {lines[0]}" if lines else self.type

    def to_json(self) -> dict[str, Any]:
        """Return the value as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Failure:
        """Read what `to_json` or a driver wrote; fields that are not known here are ignored."""
        return cls(
            type=str(value.get("type", "Error")),
            message=str(value.get("message", "")),
            hint=value.get("hint"),
            transient=bool(value.get("transient", False)),
            exit_code=value.get("exit_code"),
        )
