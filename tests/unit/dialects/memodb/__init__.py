"""MemoDB, alone: no sockets, no clock."""
