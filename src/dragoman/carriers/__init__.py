"""Carriers: how frames travel on a byte stream. Pure and incremental; they import nothing of ours but each other."""
