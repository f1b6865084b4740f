"""The shard of each job and each group of a file.

Ids stay as they are, so that their holders find the jobs. Jobs that belong together must be in one shard: members of
a group, a job and its retry. A key decides about the shard of its job, because one broker checks it. A job and those
that it waits for are in one shard, unless their keys belong to several. If nothing else decides, it is the shard that
the id names.

So a job may be in another shard than its id says. The owner of the shard knows these jobs, and other brokers search for
them (`server/cluster_places.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from dragoman.cluster.ranks import shard_of_key
from dragoman.cluster.shard_bytes import shard_in
from dragoman.transfer.errors import TransferError
from dragoman.transfer.file_index import FileIndex

MOST_NAMED: Final = 10  # jobs in one message


def choose_shards(index: FileIndex, shards: int) -> dict[bytes, int]:
    """Return the shard of each job and each group. Raises TransferError, which names jobs that cannot be together."""
    chosen: dict[bytes, int] = {}
    torn: list[bytes] = []
    for members in _families(index, shards):
        keyed = dict.fromkeys(_shards_of_keys(index, members, shards))
        if len(keyed) > 1:
            torn += [id for id in members if id in index.jobs and index.jobs[id].key is not None]
        shard = next(iter(keyed)) if keyed else _shard_of_ids(members, shards)
        chosen.update(dict.fromkeys(members, shard))
    if torn:
        more = f" and {len(torn) - MOST_NAMED} more" if len(torn) > MOST_NAMED else ""
        raise TransferError(
            f"{len(torn)} jobs with keys belong together, as members of a group or as a job and its retry, and "
            f"their keys belong to different shards: {', '.join(id.hex() for id in torn[:MOST_NAMED])}{more}. Let them "
            "end before you export, or import into a cluster with one shard"
        )
    return chosen


def watches(index: FileIndex, chosen: Mapping[bytes, int]) -> list[tuple[bytes, int]]:
    """Return the jobs and groups that jobs of other shards wait for, with the shards of those, each pair once."""
    return list(
        dict.fromkeys(
            (before, chosen[id])
            for id, entry in index.jobs.items()
            for before in entry.after
            if before in chosen and chosen[before] != chosen[id]
        )
    )


def _families(index: FileIndex, shards: int) -> Iterable[list[bytes]]:
    """Return jobs and groups that are in one shard, as lists."""
    parents: dict[bytes, bytes] = {id: id for id in (*index.groups, *index.jobs)}

    def root(id: bytes) -> bytes:
        while parents[id] != id:
            parents[id] = parents[parents[id]]
            id = parents[id]
        return id

    for id, entry in index.jobs.items():
        for other in entry.links:
            if other in parents:
                parents[root(id)] = root(other)
    keyed: dict[bytes, dict[int, None]] = {}  # shards of the keys that callers have chosen, by root
    for id, entry in index.jobs.items():
        if entry.key is not None:
            keyed.setdefault(root(id), {})[shard_of_key(entry.owner, entry.service, entry.key, shards)] = None
    for id, entry in index.jobs.items():
        for before in entry.after:
            if before in parents and root(before) != root(id):
                both = keyed.get(root(id), {}) | keyed.get(root(before), {})
                if len(both) <= 1:
                    parents[root(id)] = root(before)
                    keyed[root(before)] = both
    families: dict[bytes, list[bytes]] = {}
    for id in parents:
        families.setdefault(root(id), []).append(id)
    return families.values()


def _shards_of_keys(index: FileIndex, members: list[bytes], shards: int) -> list[int]:
    entries = [index.jobs[id] for id in members if id in index.jobs]
    return [shard_of_key(entry.owner, entry.service, entry.key, shards) for entry in entries if entry.key is not None]


def _shard_of_ids(members: list[bytes], shards: int) -> int:
    for id in members:
        shard = shard_in(id, shards)
        if shard >= 0:
            return shard
    return int.from_bytes(blake2b(members[0], digest_size=8).digest(), "big") % shards
