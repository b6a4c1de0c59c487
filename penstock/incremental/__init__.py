"""Results that follow their inputs by changes. NumPy, Arrow and DuckDB only."""
