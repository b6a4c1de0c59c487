"""The last lines of a driver's log over its rotated files, and new lines as they come."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.control.supervisor.drivers.logs import LogOf, follow_lines, last_lines


def test_the_last_lines_come_from_rotated_files_too(tmp_path: Path) -> None:
    (tmp_path / "driver.log.1").write_text("one\ntwo\n")
    (tmp_path / "driver.log").write_text("three\n")
    assert last_lines(LogOf(tmp_path), 2) == ["two", "three"]
    assert last_lines(LogOf(tmp_path), 10) == ["one", "two", "three"]
    assert last_lines(LogOf(tmp_path), 0) == []
    assert last_lines(LogOf(tmp_path / "missing"), 5) == []


LINES = st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=200), max_size=50)


@given(LINES, st.integers(1, 60))
def test_a_tail_is_the_end_of_all_lines(lines: list[str], count: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "driver.log").write_text("".join(f"{line}\n" for line in lines))
        assert last_lines(LogOf(Path(folder)), count) == lines[-count:]


def test_following_goes_on_in_the_next_run_and_ends_with_the_job(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
    (first / "driver.log").write_text("a\nb\n")
    state = {"folder": first, "over": False}

    async def follow() -> list[str]:
        found = []
        async for line in follow_lines(lambda: LogOf(state["folder"]), lambda: bool(state["over"]), 1):  # type: ignore[arg-type]
            found.append(line)
            if line == "b":
                (second / "driver.log").write_text("c\nd\n")
                state["folder"] = second
            if line == "d":
                state["over"] = True
        return found

    assert asyncio.run(asyncio.wait_for(follow(), 30)) == ["b", "c", "d"]


def test_of_a_shared_driver_only_the_lines_of_the_job_and_those_of_nobody_are_shown(tmp_path: Path) -> None:
    others = "".join(f"[job b] {number}\n" for number in range(20_000))
    (tmp_path / "driver.log").write_text(f"start\n[job a] one\n{others}WARN of the JVM\n[job a] two\n")
    assert last_lines(LogOf(tmp_path, "a"), 3) == ["one", "WARN of the JVM", "two"]
    assert last_lines(LogOf(tmp_path, "c"), 9) == ["start", "WARN of the JVM"]
    assert last_lines(LogOf(tmp_path), 1) == ["[job a] two"]
