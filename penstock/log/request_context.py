"""The context of one request: client, API version and reply callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.log.protocol.apis import Api
from penstock.log.protocol.fetch import Piece

if TYPE_CHECKING:
    from penstock.log.broker import Broker
    from penstock.log.network.connection import Connection

CLUSTER = "kafka-cluster"


class Call:
    """A request; `reply` is called once, with the body of the reply."""

    __slots__ = ("api", "broker", "client_id", "connection", "reply", "version")

    def __init__(
        self,
        connection: Connection,
        api: Api,
        version: int,
        client_id: str,
        reply: Callable[[list[Piece]], None],
    ) -> None:
        self.connection = connection
        self.broker: Broker = connection.broker
        self.api = api
        self.version = version
        self.client_id = client_id
        self.reply = reply

    @property
    def host(self) -> str:
        """The address of the client."""
        return self.connection.host

    @property
    def principal(self) -> str:
        """The principal of the client."""
        return self.connection.principal

    def allowed(self, operation: str, resource: str, name: str) -> bool:
        """Return whether the client is allowed an operation."""
        access = self.broker.security.access
        return access is None or access.allowed(self.principal, self.host, operation, resource, name)

    def allowed_operations(self, operations: Mapping[str, int], resource: str, name: str) -> int:
        """Return which of some operations the client is allowed, as Kafka sends them: a bit for each."""
        return sum(1 << bit for operation, bit in operations.items() if self.allowed(operation, resource, name))

    def allowed_somewhere(self, operation: str, resource: str) -> bool:
        """Return whether the client is allowed an operation on any resource of a type, existing or not."""
        access = self.broker.security.access
        return access is None or access.allowed_somewhere(self.principal, self.host, operation, resource)
