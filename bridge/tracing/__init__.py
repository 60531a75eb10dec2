"""Spans of messages, by OpenTelemetry. Imported only if `tracing.endpoint` is set: it costs nothing otherwise."""
