"""Fork the processes that plan the epochs of sources from one that has imported what they need.

Spark starts a Python process for each source of each query, and it imports PyArrow and PySpark first: half a second
of processor time, more than all the rest of a small query. The server imports them while the JVM starts.
"""

from __future__ import annotations

import array
import functools
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from importlib import import_module

from penstock.spark.session.planner_fork_client import MODULE, SERVER

NEEDED = ("penstock.spark.tasks.scan", MODULE)


@functools.cache
def start_planner_fork_server() -> None:
    """Start the server of this process, and pass its address to programs that the JVM starts."""
    folder = tempfile.mkdtemp(prefix="penstock-runners-")
    # The other end stays open for as long as this process lives: its end is the end of the server's input.
    ended, _ = os.pipe()
    command = [sys.executable, "-m", "penstock.spark.session.planner_fork_server", folder]
    # A group of its own: an interrupt at the terminal lets the job finish its epoch, for which it needs its runners.
    as_input = [(os.POSIX_SPAWN_DUP2, ended, 0)]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=as_input, setpgroup=0)
    os.close(ended)
    os.environ[SERVER] = f"{folder}/socket"


def main(folder: str) -> None:
    """Import what runners need, and fork one for each program that asks, until the starting process ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for name in NEEDED:
        import_module(name)
    # Garbage collection in a runner need not scan all these modules.
    gc.freeze()
    try:
        _serve(listener)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _serve(listener: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _run(connection)
        connection.close()


def _run(connection: socket.socket) -> None:
    """Act as the runner that Spark's `python -m` would start, and end as it does."""
    status = 1
    try:
        _take_over(connection)
        runner = sys.modules[MODULE]
        with runner.get_sock_file_to_executor(timeout=None) as file:
            runner.main(file, file)
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _take_over(connection: socket.socket) -> None:
    """Take the folder, environment and output of the program that Spark started, and end with it."""
    size, rights, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(2 * array.array("i").itemsize))
    for source, target in zip(array.array("i", rights[0][2]), (1, 2), strict=True):
        os.dup2(source, target)
        os.close(source)
    with connection.makefile("rb") as given:
        folder, environment = json.loads(given.read(int.from_bytes(size, "big")))
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    paths = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [folder, *(each for each in paths if each not in sys.path)]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()


def _end_with(connection: socket.socket) -> None:
    connection.recv(1)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
