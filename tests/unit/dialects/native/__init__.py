"""The native dialect, alone: no sockets, no clock."""
