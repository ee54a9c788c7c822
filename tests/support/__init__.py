"""What the suites share: engines under test, the async adapter, invariants."""
