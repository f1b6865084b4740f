"""Benchmarks of Dragoman beside other systems: run `python -m bench` from the repository's root.

This is not a test, because the figures depend on the machine. The result is a ratio: to a server that does not handle
jobs (PingPong: zmq.proxy; MemoDB: an SP echo server, and for large jobs one on asyncio's streams), or, for the whole
way from client to worker and back, to other task queues. Both are measured in the same minutes under the same load, and
only undisturbed runs count (see `measure.py`).
"""
