"""What a queue and its workers tell about themselves: Prometheus, Graphite, OpenTelemetry, structured logs."""
