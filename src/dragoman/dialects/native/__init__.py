"""Native: Dragoman's own dialect, over ZeroMQ. docs/dialects/native.md is its page."""
