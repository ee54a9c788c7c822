"""What is imported, and what is said where a package is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_graphite_and_logs_need_no_package_of_the_extra():
    names = ("prometheus_client", "opentelemetry")
    code = (
        f"import sys, penstock.metrics.graphite, penstock.metrics.logs; print([n for n in {names} if n in sys.modules])"
    )
    assert python(code) == "[]"


@pytest.mark.parametrize(
    ("module", "package", "told"),
    [
        ("prometheus", "prometheus_client", "metrics for Prometheus need prometheus-client"),
        ("otel", "opentelemetry", "spans need opentelemetry-api"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(module, package, told):
    code = f"""
import sys
sys.modules[{package!r}] = None
import penstock
try:
    import penstock.metrics.{module}
except penstock.UsageError as error:
    print(error)
"""
    said = python(code)
    assert said.startswith(told) and said.endswith("pip install 'penstock[metrics]'")
