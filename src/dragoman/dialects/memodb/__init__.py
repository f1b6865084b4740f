"""MemoDB: workers and callers that ask and wait, over NNG. docs/dialects/memodb.md is its page."""
