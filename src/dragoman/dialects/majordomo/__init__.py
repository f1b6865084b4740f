"""Majordomo: ZeroMQ RFC 7 and 18, one door for clients and workers. docs/dialects/majordomo.md is its page."""
