"""A polite crawl with Spark: `make demo`, or `python -m crawl` in this folder's parent."""
