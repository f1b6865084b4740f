"""PingPong: workers that ping, over ZeroMQ. docs/dialects/pingpong.md is its page."""
