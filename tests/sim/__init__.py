"""The small world: the real line, core, session and carriers, and everything around them made up from a seed."""
