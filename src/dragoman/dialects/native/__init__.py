"""Native: Dragoman's own dialect, over ZeroMQ. See docs/dialects/native.md."""
