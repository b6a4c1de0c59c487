"""What a start of the log loads and leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

IMPORTS = """
import sys
import penstock.log.serve
from pathlib import Path
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
print("hypothesis" in sys.modules, peak < 100_000)
"""


def test_the_log_does_not_load_a_test_library_that_is_installed_beside_it(tmp_path: Path) -> None:
    """kio imports hypothesis where it finds it: 200 MB at the first start in a folder, and a `.hypothesis` there."""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}){IMPORTS}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "True"]
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_uses_the_test_library_keeps_it() -> None:
    program = "import penstock.log.errors, hypothesis; print(hypothesis.strategies.text().example is not None)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
