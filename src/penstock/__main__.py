"""`python -m penstock` is the program `penstock`."""

from penstock.cli import main

main()
