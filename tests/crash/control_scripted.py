"""`penstock server` or `up` whose drivers run scripted jobs: python -m tests.crash.control_scripted FOLDER COMMAND."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from penstock import cli
from penstock.control import server
from penstock.control.supervisor.drivers.launchers import LocalLauncher
from penstock.control.supervisor.options import Options
from tests.control.supervisor.running_manager import scripted_python


def main(folder: Path, command: list[str]) -> None:
    python = scripted_python(folder)
    vars(server)["LocalLauncher"] = lambda: LocalLauncher(python=python)
    # The one after a killed manager waits for the end of its lease.
    vars(server)["Options"] = partial(Options, lease_seconds=2.0)
    sys.argv = ["penstock", *command]
    cli.main()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
