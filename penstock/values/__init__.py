"""Python values in declared types: each is converted without loss, or reported as one that does not fit.

All results of user code are converted to Arrow here. The rules for scalar types are in `scalars`, those of rows, arrays
and maps in `columns`; docs/reference/values.md has them as a table.
"""

from __future__ import annotations

from penstock.values.columns import Column, Lists, Rows, column_of, fit_array, fit_batch, rows_of
from penstock.values.scalars import Misfit

__all__ = ["Column", "Lists", "Misfit", "Rows", "column_of", "fit_array", "fit_batch", "rows_of"]
