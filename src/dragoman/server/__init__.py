"""The program: configuration, wiring, and the line that runs it all."""
