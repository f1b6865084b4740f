"""The pure state machine of the broker: no I/O, no clock, no random, no log, no async; standard library only."""
