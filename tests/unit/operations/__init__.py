"""Tests of the desk: one file a noun."""
