"""`dragoman demo`: a broker with callers and workers of every dialect, in one command."""
