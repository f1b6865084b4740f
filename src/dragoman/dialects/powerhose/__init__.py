"""Powerhose: workers that register and are called back, over ZeroMQ. docs/dialects/powerhose.md is its page."""
