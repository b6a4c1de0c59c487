from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from penstock.cli import main


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def penstock(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Said]:
    """The command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))

    def call(*arguments: object) -> Said:
        monkeypatch.setattr("sys.argv", ["penstock", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call
