"""`promtool check metrics`, of Prometheus: what it finds wrong on a page of metrics."""

from __future__ import annotations

import shutil
import subprocess

import pytest

INSTALL = "promtool is not installed: apt install prometheus"


def complaints(page: bytes) -> str:
    """Return what promtool says of a page, and nothing if all is right; skips the test where it is not installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip(INSTALL)
    done = subprocess.run([program, "check", "metrics"], input=page, capture_output=True, text=False, check=False)
    return (done.stdout + done.stderr).decode() or ("" if done.returncode == 0 else f"exit code {done.returncode}")
