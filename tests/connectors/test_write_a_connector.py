"""Promise: the code of docs/how-to/write-a-connector.md runs as it stands, and its connectors keep their contracts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-connector.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks() -> list[str]:
    return BLOCK.findall(PAGE.read_text())


def run(code: list[str]) -> dict[str, object]:
    # As a script: its classes travel to tasks by value.
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(code):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    return names


def test_the_connectors_of_the_page_keep_their_contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run([block for block in blocks() if "run_to_end(pipeline" not in block])


def test_the_pipeline_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run(blocks())
    assert len(names["out"]["epoch_files"]) == 3  # type: ignore[index]


def test_the_source_of_the_page_reports_a_table_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = run(blocks()[:1])["AppendedRows"]
    with pytest.raises(Exception, match="cannot read table readings"):
        source("missing.db").check()  # type: ignore[operator]
