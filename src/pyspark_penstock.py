"""Spark finds this module by its name and registers the format `penstock` by itself."""

from penstock.spark.format import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
