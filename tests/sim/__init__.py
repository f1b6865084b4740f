"""Simulation: the real runner, core, broker sides and carriers, with everything around them generated from a seed."""
