"""The versions of a table that a stream is joined with have a checksum: any changed byte is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.tables.source import TableSource
from penstock.spark.checkpoints.identity import FORMAT, Identity, write_identity
from penstock.spark.checkpoints.inspect import inspect
from penstock.spark.lowering.table_versions import Versions
from penstock.storage.folders import Folder, folder

USERS = pa.table({"id": [1, 2], "name": ["ada", "bob"]})


class Users(TableSource):
    """A table in memory."""

    name = "users"

    def rows(self) -> pa.Table:
        return USERS

    def spec(self) -> dict[str, Any]:
        return {"kind": "users"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Folder:
    """A checkpoint in which epoch 0 has seen one version of the table."""
    root = folder(tmp_path)
    write_identity(root, Identity(FORMAT, "clicks", "lineage", "skeleton", {}, {}))
    versions = Versions(root / "staged" / "final" / "tables" / "users", Users(), ("id",), None, 60, 3, "join_table")
    assert versions.seen_by(0).equals(USERS)
    return root


def test_a_changed_byte_that_arrow_still_parses_is_reported(checkpoint: Folder) -> None:
    assert inspect(checkpoint).all_damaged == {}
    (name,) = (name for name in checkpoint.files() if name.endswith(".arrow"))
    content = checkpoint.read(name)
    assert content is not None
    checkpoint.write(name, content.replace(b"bob", b"rob"))
    version = pa.ipc.open_file(checkpoint.read(name)).read_all()
    assert version.column("name").to_pylist() == ["ada", "rob"]
    assert inspect(checkpoint).all_damaged == {name: "does not match its checksum"}
