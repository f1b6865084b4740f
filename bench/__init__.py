"""Dragoman measured beside libzmq's own proxy: run `python -m bench` from the repository's root.

Not a test: the figures follow the machine. What counts is the ratio to zmq.proxy, measured in the same minutes under
the same load, and only in runs that nothing else disturbed (see `measure.py`).
"""
