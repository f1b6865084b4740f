"""Majordomo: ZeroMQ RFC 7 and 18; clients and workers share one listener socket. See docs/dialects/majordomo.md."""
