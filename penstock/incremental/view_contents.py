"""The contents of a view in its state: one more store beside those of its operators."""

from __future__ import annotations

from penstock.incremental.circuit.state import Arrangement, with_weight
from penstock.plan.relations import Relation

# Numbers of stores that no operator has: the contents, and then the rows of each input that expire.
CONTENTS = 1_000_000


def contents_of(relation: Relation) -> Arrangement:
    """Return the store of the contents, by the columns that no two rows have in common, or by all."""
    unique = relation.keys_unique
    return Arrangement(CONTENTS, with_weight(relation.schema.nullable().arrow), unique or relation.schema.names)
