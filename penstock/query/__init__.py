"""From the clauses of an SQL query to the nodes of a plan."""
