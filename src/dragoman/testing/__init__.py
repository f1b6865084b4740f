"""Shipped for users: what makes a broker's world repeatable in tests."""
