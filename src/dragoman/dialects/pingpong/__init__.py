"""PingPong: a dialect over ZeroMQ whose workers send PING as heartbeat. Described in docs/dialects/pingpong.md."""
