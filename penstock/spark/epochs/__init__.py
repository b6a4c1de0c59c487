"""One epoch after another: what is read, counted, put aside and written."""
