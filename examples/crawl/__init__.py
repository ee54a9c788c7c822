"""A polite crawl of a small web: `make demo`, or `python -m crawl` in this folder's parent."""
