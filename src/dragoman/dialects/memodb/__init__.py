"""MemoDB: a dialect over NNG whose workers and callers send requests and wait. See docs/dialects/memodb.md."""
