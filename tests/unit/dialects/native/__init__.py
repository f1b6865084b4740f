"""native, alone: no sockets, no clock."""
