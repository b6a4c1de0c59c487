"""The systems that are measured: one module each, run as `python -m benchmarks.peers.NAME CONFIG`.

Flink, Bytewax and Pathway pin old versions, so each has an environment of its own, `.venv-NAME` in the
checkout, made by `make bench-peers`. Their modules import the standard library, that system and
`benchmarks.peers.protocol` only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INSTALLABLE = ("flink", "bytewax", "pathway")
# Same module, other settings.
MODULES = {"spark-defaults": "spark"}


def interpreter(name: str) -> Path:
    """Return the Python that runs a system, whether it is there or not."""
    if name not in INSTALLABLE:
        return Path(sys.executable)
    return ROOT / f".venv-{name}" / "bin" / "python"


def installed(name: str) -> bool:
    """Say whether a system can be run; `.ready` marks an installation that came to its end."""
    return name not in INSTALLABLE or (ROOT / f".venv-{name}" / ".ready").is_file()


def requirements(name: str) -> Path:
    """Return the file with a system's pinned versions."""
    return Path(__file__).with_name(f"{name}.txt")


def version(name: str) -> str:
    """Return the version that the requirements pin."""
    lines = requirements(name).read_text().splitlines()
    return next(line.split("==")[1] for line in lines if f"{name}==" in line)


def install(name: str) -> None:
    """Create a system's environment with its pinned versions; one that is there and current is kept."""
    folder = ROOT / f".venv-{name}"
    ready = folder / ".ready"
    wanted = requirements(name).read_text()
    if ready.is_file() and ready.read_text() == wanted:
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(interpreter(name)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(requirements(name))], check=True)
    ready.write_text(wanted)


def command(name: str, config: str) -> list[str]:
    """Return what runs a system with a configuration in JSON."""
    return [str(interpreter(name)), "-m", f"benchmarks.peers.{MODULES.get(name, name)}", config]
