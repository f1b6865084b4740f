"""Tests of the commands, without processes."""
