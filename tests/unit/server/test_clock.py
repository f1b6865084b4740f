"""Ids and tokens of the server."""

from __future__ import annotations

import pytest

from dragoman.cluster.shard_bytes import CALL, MOST_SHARDS, shard_in, shard_of
from dragoman.core.entropy import Entropy
from dragoman.server.clock import POOL, ClusterEntropy, SystemEntropy
from dragoman.testing.entropy import SeededEntropy


@pytest.mark.parametrize(
    "entropy", [SystemEntropy(), ClusterEntropy(), SeededEntropy(1)], ids=["system", "cluster", "seeded"]
)
def test_r1_no_token_has_a_zero_byte(entropy: Entropy) -> None:
    """Workers that keep a token as a C string returned the part before its first zero byte: six in a hundred jobs of
    Majordomo and of PingPong's edition package were lost."""
    tokens = [entropy.token() for _ in range(3 * POOL)]
    assert {len(token) for token in tokens} == {16}
    assert not [token for token in tokens if 0 in token]
    assert len(set(tokens)) == len(tokens)


def test_tokens_of_a_cluster_that_name_no_shard_are_of_calls() -> None:
    assert shard_of(ClusterEntropy().token()) == CALL
    assert shard_in(ClusterEntropy().token(), MOST_SHARDS) == -1
