"""Words of SQL that are no names of columns unless they are quoted, as Spark's parser and sqlglot read them."""

from __future__ import annotations

# In a schema, such as "a string, b bigint".
NO_COLUMNS_IN_DDL = frozenset(
    (
        *("any", "case", "constraint", "current_date", "current_timestamp", "current_user", "exclude"),
        *("false", "like", "not", "null", "select", "session_user", "true", "unique", "with"),
    )
)
# In an expression.
NO_COLUMNS = NO_COLUMNS_IN_DDL | frozenset(
    (
        *("alter", "and", "as", "between", "call", "create", "cross", "current_path", "distinct", "drop"),
        *("else", "except", "execute", "explain", "fetch", "for", "from", "grant", "having", "if", "ilike"),
        *("inner", "insert", "intersect", "into", "join", "lateral", "minus", "on", "or", "outer", "qualify"),
        *("rename", "revoke", "rollback", "serdeproperties", "show", "tablesample", "then", "uncache"),
        *("union", "using", "values", "when", "where"),
    )
)
