"""`python -m penstock.storage.removal URL`: remove a folder with all that is in it, wherever it is.

A process of its own: the libraries of object stores and of Hadoop take memory that the job manager does without.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.storage.folders import folder


def main(arguments: Sequence[str]) -> int:
    """Remove the folder; print what went wrong, if it did."""
    try:
        folder(arguments[0]).remove("")
    except PenstockError as error:
        print(error.message, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"{arguments[0]}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
