"""Jobs from a client program through a broker to workers and back: Dragoman beside other task queues.

`systems.py` lists the systems and their configuration; `ours.py`, `our_workers.py`, `pool.py` and `foreign` hold the
code of their clients and workers; `drive.py` is the client program that measures.
"""
