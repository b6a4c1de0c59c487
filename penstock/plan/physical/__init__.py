"""The physical plan: lanes, queries, pace, watermarks and guarantees, decided once and read by everyone."""
