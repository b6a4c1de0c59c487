"""The staging area of results: rows that a replay would compute otherwise wait in it until every sink has them.

Tasks write their rows to files; once all are there the driver seals the epoch, and only then do sinks see it. After a
crash a sealed epoch goes out as it is, whatever is computed now; no sink has seen one that is not sealed.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import CheckpointDamaged
from penstock.spark.lowering.job_storage import START_OVER
from penstock.storage.folders import Folder
from penstock.values.arrow_stream import STREAM_END

Tables = dict[str, list[pa.Table]]
_SEAL = "sealed"


@dataclass(frozen=True)
class StagedPartition:
    """The rows of one partition of an output, in a file."""

    output: int
    partition: int
    file: str


@dataclass(frozen=True)
class SealedEpoch:
    """A whole epoch: the staged partitions of its outputs, its late and rejected rows by node, and its answers' files.

    A seal of an earlier version has no `answers`.
    """

    partitions: tuple[StagedPartition, ...]
    late: Tables
    rejected: Tables
    answers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResultStaging:
    """The folder of one query; small enough to travel to every task."""

    folder: Folder

    def put(self, epoch: int, output: int, partition: int, batches: Iterable[pa.RecordBatch]) -> StagedPartition:
        """Write rows durably; a task that runs twice writes two files, and returns one."""
        file = f"{epoch}/{output}-{partition}-{uuid.uuid4().hex}.arrow"
        data, writer = pa.BufferOutputStream(), None
        for batch in batches:
            writer = writer or pa.ipc.new_stream(data, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()
        self.folder.write(file, data.getvalue().to_pybytes())
        return StagedPartition(output, partition, file)

    def batches(self, staged: StagedPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        data = self.folder.read(staged.file)
        if data is None:
            raise self._damaged(staged.file, "is missing")
        if data and not data.endswith(STREAM_END):
            raise self._damaged(staged.file, "is cut off")
        try:
            yield from pa.ipc.open_stream(data) if data else ()
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(staged.file, "cannot be read") from error

    def lost_seal(self, epoch: int) -> CheckpointDamaged:
        """Return the error for an epoch that sinks have and that is not sealed (any more)."""
        message = (
            f"{self.folder}/{epoch}/{_SEAL} is missing, and sinks have rows of epoch {epoch}: functions that are not "
            "deterministic would be called again, and state would not match the rows that are out"
        )
        hint = (
            f"put a newer copy of the checkpoint back, or {START_OVER}; if deterministic=False is new in the pipeline, "
            "run the version without it until the epoch is done"
        )
        return CheckpointDamaged(message, hint=hint)

    def _damaged(self, file: str, what: str) -> CheckpointDamaged:
        message = f"{self.folder}/{file} {what}: it holds rows of an epoch that sinks may have a part of"
        return CheckpointDamaged(message, hint="put the file back from a copy, or restore a savepoint if there is one")

    def clear(self, epoch: int) -> None:
        """Delete epochs that are done, and what an unfinished attempt of this one staged."""
        for name in self.folder.names():
            if name != str(epoch) or self.sealed(epoch) is None:
                self.folder.remove(name)

    def seal(self, epoch: int, whole: SealedEpoch) -> None:
        """Decide that the epoch is published like this."""
        self.folder.write(f"{epoch}/{_SEAL}", pickle.dumps(whole))

    def sealed(self, epoch: int) -> SealedEpoch | None:
        """Return the epoch if it was sealed."""
        file = f"{epoch}/{_SEAL}"
        data = self.folder.read(file)
        if data is None:
            return None
        try:
            found = pickle.loads(data)
        except Exception as error:  # damaged bytes can make pickle raise anything
            raise self._damaged(file, "cannot be read") from error
        return found if isinstance(found, SealedEpoch) else None
