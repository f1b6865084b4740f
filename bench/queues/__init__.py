"""Jobs from a client program through a broker to workers and back: Dragoman beside task queues that others use.

`systems.py` says who they are and how they are set up; `ours.py`, `our_workers.py`, `pool.py` and `foreign` hold what
their clients and workers run; `drive.py` is the client program that measures.
"""
