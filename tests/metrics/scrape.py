"""Scrapes as Prometheus makes them."""

from __future__ import annotations

import urllib.request
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families


class Scrape(dict[tuple[str, ...], float]):
    """Samples by name and the values of their labels, the tube first: scrape["penstock_tasks", "jobs", "ready"]."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        for family in self.families:
            for sample in family.samples:
                labels = sorted(sample.labels, key=lambda label: label != "tube")
                key = (sample.name, *(sample.labels[label] for label in labels))
                assert key not in self, f"{key} is told twice"
                self[key] = sample.value

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        """All samples of a name."""
        return {key[1:]: value for key, value in self.items() if key[0] == name}

    @property
    def labels(self) -> set[str]:
        return {label for family in self.families for sample in family.samples for label in sample.labels}


class Served:
    """What a collector tells, without the way over HTTP."""

    def __init__(self, collector: Any) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)

    def scrape(self) -> Scrape:
        return Scrape(generate_latest(self._registry).decode())


def scrape(endpoint: Any) -> Scrape:
    with urllib.request.urlopen(endpoint.url, timeout=90) as answer:
        assert answer.status == 200
        return Scrape(answer.read().decode())
