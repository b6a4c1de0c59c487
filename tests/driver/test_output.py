"""The output of a driver: bounded files, and nobody waits for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.driver.output import RotatingFile

PRINTS = """
import subprocess, sys
from pathlib import Path
from penstock.driver.output import OutputCapture, RotatingFile
capture = OutputCapture(RotatingFile(Path(sys.argv[1]), max_bytes=100_000, files=3))
capture.start()
print("first")
subprocess.run([sys.executable, "-c", "print('x' * 5_000_000)"], check=True)
print("last", file=sys.stderr)
capture.flush()
"""


def test_a_program_that_prints_much_fills_no_more_than_its_files(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    subprocess.run([sys.executable, "-c", PRINTS, str(log)], check=True, timeout=60)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["driver.log", "driver.log.1", "driver.log.2"]
    assert all(file.stat().st_size <= 100_000 for file in files)
    assert log.read_text().endswith("\nlast\n")


@given(parts=st.lists(st.binary(max_size=50)), size=st.integers(1, 40))
def test_the_files_hold_the_end_of_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], size: int
) -> None:
    log = RotatingFile(tmp_path_factory.mktemp("log") / "l", size, 3)
    for part in parts:
        log.write(part)
    log.close()
    names = ["l.2", "l.1", "l"]
    kept = b"".join((log.path.parent / name).read_bytes() for name in names if (log.path.parent / name).exists())
    whole = b"".join(parts)
    assert whole.endswith(kept)
    assert len(kept) <= 3 * size
    assert len(kept) >= min(len(whole), 2 * size)


def test_what_cannot_be_written_is_dropped(tmp_path: Path) -> None:
    RotatingFile(tmp_path / "missing" / "driver.log").write(b"text")


LABELS = """
import sys, threading
from pathlib import Path
from penstock.driver.output import OutputCapture, RotatingFile
from penstock.observe.thread_labels import labelled
capture = OutputCapture(RotatingFile(Path(sys.argv[1])))
capture.start()
both = threading.Barrier(2)

def work(job):
    with labelled(job):
        both.wait()
        for number in range(200):
            print("of", job, number, sep=" ", end="\\n")
        print("two\\nlines", file=sys.stderr)

threads = [threading.Thread(target=work, args=(job,)) for job in "ab"]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("of nobody")
capture.flush()
"""


def test_lines_of_jobs_of_a_pool_are_labelled_and_not_mixed(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    subprocess.run([sys.executable, "-c", LABELS, str(log)], check=True, timeout=60)
    lines = log.read_text().splitlines()
    for job in "ab":
        expected = [f"[job {job}] of {job} {number}" for number in range(200)]
        assert [line for line in lines if line.startswith(f"[job {job}] of")] == expected
        assert {f"[job {job}] two", f"[job {job}] lines"} <= {*lines}
    assert lines[-1] == "of nobody"
    assert len(lines) == 405
