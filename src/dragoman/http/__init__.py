"""The HTTP listener: API for callers, workers and operators, event streams, health checks and metrics."""
