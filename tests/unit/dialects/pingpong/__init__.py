"""PingPong, alone: no sockets, no clock."""
