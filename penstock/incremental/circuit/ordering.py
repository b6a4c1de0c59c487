"""The order of rows as Spark has it: NaN is the greatest number, texts are ordered by their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.incremental.circuit.row_identity import Numbers, json_texts

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OrderBy:
    """A column, and how rows are ordered by it."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    def codes(self, table: pa.Table) -> list[Codes]:
        """Return whole numbers that are in the order of the rows, the most significant first."""
        column = table.column(self.column)
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        found = _codes(array)
        if self.descending:
            found = [~one for one in found]
        if array.null_count:
            null = array.is_null().to_numpy(zero_copy_only=False)
            first = np.where(null, -1, 0) if self.nulls_first else np.where(null, 1, 0)
            found = [first, *(np.where(null, 0, one) for one in found)]
        return found


def sorted_positions(groups: Numbers, codes: Sequence[Codes]) -> Numbers:
    """Return the positions of rows in the order of their groups, and then of codes, the most significant first."""
    found: Numbers = np.lexsort((*reversed(codes), groups))
    return found


def _codes(array: pa.Array) -> list[Codes]:
    kind = array.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_decimal(kind):
        pairs = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
        # The lower word is not signed: flipping its first bit gives it the order of signed numbers.
        return [pairs[1::2], pairs[0::2] ^ np.iinfo(np.int64).min]
    if pa.types.is_floating(kind):
        values = _filled(array).astype(np.float64) + 0.0
        bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
        return [np.where(bits < 0, ~bits ^ np.iinfo(np.int64).min, bits)]
    if pa.types.is_boolean(kind):
        return [_filled(array).astype(np.int64)]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return [_ranks(array)]
    if pa.types.is_nested(kind):
        return [_ranks(json_texts(array))]
    width = {32: pa.int32(), 64: pa.int64()}[kind.bit_width] if not pa.types.is_integer(kind) else kind
    return [_filled(array.view(width)).astype(np.int64)]


def _ranks(texts: pa.Array) -> Codes:
    coded = texts.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    if not len(ranks):
        return np.zeros(len(texts), np.int64)
    found: Codes = ranks[pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)]
    return found


def _filled(array: pa.Array) -> npt.NDArray[np.generic]:
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(0).cast(array.type))
    found: npt.NDArray[np.generic] = array.to_numpy(zero_copy_only=False)
    return found
