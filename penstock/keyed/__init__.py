"""Process functions at work: the rows of many keys in Arrow, their state as bytes. Knows no Spark."""
