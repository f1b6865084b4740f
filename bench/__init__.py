"""Dragoman measured beside others: run `python -m bench` from the repository's root.

Not a test: the figures follow the machine. What counts is the ratio to a server that knows nothing of jobs (PingPong:
zmq.proxy; MemoDB: an SP echo server, and for large jobs one on asyncio's streams) or, all the way from client to worker
and back, to task queues of others: measured in the same minutes under the same load, and only in runs that nothing else
disturbed (see `measure.py`).
"""
