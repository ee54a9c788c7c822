"""A page about a queue, made of the figures of its lake."""

from __future__ import annotations

from penstock.pipeline.report.page import render, write_report

__all__ = ["render", "write_report"]
