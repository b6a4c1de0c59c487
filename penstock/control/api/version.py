"""The version of Penstock that serves or sends requests."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("penstock")
