"""Tests of the pure core: one file per subject."""
