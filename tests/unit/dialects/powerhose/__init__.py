"""Powerhose, alone: no sockets, no clock."""
