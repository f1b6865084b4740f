"""Majordomo, alone: no sockets, no clock."""
