"""`python -m penstock`: the command line without its script."""

from penstock.cli import main

main()
