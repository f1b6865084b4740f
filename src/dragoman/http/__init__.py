"""The HTTP door: callers, workers, operators and whoever watches, over plain HTTP."""
