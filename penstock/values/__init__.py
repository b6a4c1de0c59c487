"""Python values in declared types: each is held exactly as it was given, or named as one that does not fit.

This is the only place that turns what user code returns into Arrow. The rules for each type are in `plain`, those of
rows, arrays and maps in `columns`; docs/guide.md has them as a table.
"""

from __future__ import annotations

from penstock.values.arrays import fit_array, fit_batch
from penstock.values.columns import Column, Lists, Rows, column_of, rows_of
from penstock.values.misfit import Misfit

__all__ = ["Column", "Lists", "Misfit", "Rows", "column_of", "fit_array", "fit_batch", "rows_of"]
