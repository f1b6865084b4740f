"""Carriers: framing protocols on a byte stream. Pure and incremental; they import only each other."""
