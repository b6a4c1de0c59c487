"""`python -m benchmarks.peers install [NAME ...]` and `python -m benchmarks.peers list`."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.peers import INSTALLABLE, install, installed, version

USAGE = f"usage: python -m benchmarks.peers install [{'|'.join(INSTALLABLE)} ...] | list"


def main(arguments: list[str]) -> int:
    """Install or list peers; 0 done, 1 an installation failed, 2 a wrong command."""
    match arguments:
        case ["list"]:
            for name in INSTALLABLE:
                print(f"{name:8} {version(name):8} {'installed' if installed(name) else 'not installed'}")
            return 0
        case ["install", *names] if set(names) <= set(INSTALLABLE):
            return max([_install(name) for name in names or INSTALLABLE])
    print(USAGE, file=sys.stderr)
    return 2


def _install(name: str) -> int:
    print(f"{name} {version(name)} ...", flush=True)
    try:
        install(name)
    except subprocess.CalledProcessError as error:
        print(f"{name} could not be installed: {' '.join(error.cmd[1:5])} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
