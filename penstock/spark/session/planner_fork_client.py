"""Ask the fork server for the process that plans a source's epochs, and live as long as that process does.

Spark starts this program instead of the runner, ends the runner by ending it, and reads its output. It imports
nothing that takes time. Without a server it becomes the runner itself.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys

# Not a setting, so it does not start with their prefix.
SERVER = "_PENSTOCK_RUNNER_SERVER"
MODULE = "pyspark.sql.streaming.python_streaming_source_runner"


def main(address: str) -> None:
    """Send the server where this program runs, its environment and its output, and wait for the runner's end."""
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(address)
    except OSError:
        os.execv(sys.executable, [sys.executable, "-m", MODULE])
    given = json.dumps([os.getcwd(), dict(os.environ)]).encode()
    outputs = array.array("i", [1, 2])
    server.sendmsg([len(given).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, outputs)])
    server.sendall(given)
    server.recv(1)


if __name__ == "__main__":
    main(os.environ[SERVER])
