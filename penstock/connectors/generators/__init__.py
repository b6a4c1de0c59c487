"""Sources without an external system: generated rows and rows from the program."""
