"""For people who write Python: addresses, clients and workers."""
