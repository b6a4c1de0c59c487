"""A real server on this machine that takes posts, and fails when it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Takes posts; `answers` are the statuses of the next ones, -1 for hanging up, then it is always 200."""

    def __init__(self) -> None:
        self.posts: list[tuple[dict[str, str], list[Any]]] = []
        self.answers: list[int] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}/in?x=1"

    @property
    def rows(self) -> list[Any]:
        return [row for _, rows in self.posts for row in rows]

    @property
    def keys(self) -> list[str]:
        return [headers["Idempotency-Key"] for headers, _ in self.posts]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = receiver.answers.pop(0) if receiver.answers else 200
                if status == -1:
                    self.close_connection = True
                    return
                if status == 200:
                    receiver.posts.append((dict(self.headers.items()), body))
                self.send_response(status)
                said = b"" if status == 200 else b"so it is"
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver."""
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()
