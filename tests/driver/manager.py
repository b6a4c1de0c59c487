"""A manager's end of a driver's socket, for tests."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

from penstock.driver.messages import Message
from penstock.driver.socket_server import SOCKET


class Manager:
    """A manager's end of the socket."""

    def __init__(self, folder: Path, token: int | None = None, after: int = 0) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        handle = os.open(folder, os.O_RDONLY)
        self.socket.connect(f"/proc/self/fd/{handle}/{SOCKET}")
        os.close(handle)
        self.lines = self.socket.makefile("rb")
        if token is not None:
            self.send({"type": "attach", "token": token, "after": after})

    def send(self, message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> Message | None:
        """Return the next message; None if the driver has closed the connection."""
        try:
            line = self.lines.readline()
        except ConnectionResetError:
            return None
        return json.loads(line) if line.endswith(b"\n") else None

    def until(self, kind: str) -> list[Message]:
        """Return all messages up to the first of this type or kind of event."""
        found: list[Message] = []
        while not found or kind not in (found[-1]["type"], found[-1].get("kind")):
            message = self.read()
            assert message is not None, f"closed before {kind}: {found}"
            found.append(message)
        return found

    def close(self) -> None:
        self.lines.close()
        self.socket.close()
