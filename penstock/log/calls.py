"""One request on its way: who asks, in which version, and where the answer goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.log.protocol.apis import Api
from penstock.log.protocol.fetch import Piece

if TYPE_CHECKING:
    from penstock.log.broker import Broker
    from penstock.log.connection import Connection

CLUSTER = "kafka-cluster"


class Call:
    """A request; `reply` is called once, with the body of the answer."""

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
        """Where the client is."""
        return self.connection.host

    @property
    def principal(self) -> str:
        """Who the client is."""
        return self.connection.principal

    def allowed(self, operation: str, resource: str, name: str) -> bool:
        """Say whether the client may do something."""
        access = self.broker.security.access
        return access is None or access.allowed(self.principal, self.host, operation, resource, name)

    def allowed_somewhere(self, operation: str, resource: str) -> bool:
        """Say whether the client may do something with any resource of a kind, be it there yet or not."""
        access = self.broker.security.access
        return access is None or access.allowed_somewhere(self.principal, self.host, operation, resource)
