"""Clients and workers of other task queues. Their packages are installed in an environment of the benchmarks."""
