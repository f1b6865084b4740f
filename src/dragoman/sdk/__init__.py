"""Python SDK: addresses, clients and workers."""
