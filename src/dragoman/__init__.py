"""Dragoman: a job broker that speaks its workers' protocols as they are."""

__version__ = "0.1.0"
