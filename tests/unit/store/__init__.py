"""Tests of the store, without a server."""
