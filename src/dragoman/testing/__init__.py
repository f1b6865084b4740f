"""Test tools for users: a local broker, a virtual clock and pytest fixtures."""
