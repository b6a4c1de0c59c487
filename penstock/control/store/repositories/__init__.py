"""One repository a noun: what is stored of it, and the few ways to read and write it."""
