"""Errors of an export or an import."""

from __future__ import annotations


class TransferError(Exception):
    """It cannot be done. The message says why, and what to do. Nothing was changed, unless it says so."""


class InUse(TransferError):
    """A broker uses the data folder, or runs in the cluster."""


class DamagedShard(TransferError):
    """The log of a shard cannot be used as a whole."""


class BadFile(TransferError):
    """The file is not an export, or is damaged, cut off or edited."""
