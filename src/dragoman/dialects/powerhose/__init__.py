"""Powerhose: a dialect over ZeroMQ whose workers register and are called back. See docs/dialects/powerhose.md."""
