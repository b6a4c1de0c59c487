"""Tables of keyed state: rows of some keys, and when each of them is due or expires."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StateTable:
    """Rows of state; at `event` (watermark) and `processing` time their key has to be called, after `expires` they go.

    Without a time a row is never due, and never expires.
    """

    rows: pa.Table
    event: Numbers | None = None
    processing: Numbers | None = None
    expires: Numbers | None = None
