"""The store of what must survive a crash."""
