"""Worker-Controller, alone: no sockets, no clock."""
