"""Tests of the pure core: one file a noun."""
