"""A disk that is full: an error for the writer, everything else goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STORY = """
import resource, signal, sys
from pathlib import Path
from penstock.log.storage.store import Store
from tests.log.storage.logs import append, consumed, plain

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(Path(sys.argv[1]))
store.create_topic("t", 1, {"segment.bytes": sys.argv[2]})
partition = store.partition("t", 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
refused = 0
for mark in range(200):
    before = partition.end
    try:
        append(partition, plain(1, 500, mark=mark))
    except OSError:
        refused += 1
        assert partition.end == before
        assert len(consumed(partition)) == before
assert refused, "the disk was never full"
assert partition.end, "nothing was written before"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
full = partition.end
for mark in range(50):
    append(partition, plain(1, 500, mark=mark))
assert [record.offset for record in consumed(partition)] == list(range(full + 50))
store.handles.close()  # as after kill -9: no snapshot
Path(sys.argv[1], ".lock").unlink()
again = Store(Path(sys.argv[1])).partition("t", 0)
assert [record.offset for record in consumed(again)] == list(range(full + 50))
assert again.leader_epoch == 0, "something was torn"
print("done", full)
"""


def test_a_full_disk_refuses_records_and_takes_them_again_when_there_is_room(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", STORY, str(tmp_path), str(1 << 20)], capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("done ")
