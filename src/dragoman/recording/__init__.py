"""Recordings of a broker's inputs, and their replay."""
