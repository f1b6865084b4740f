"""What a job broker is. Pure: no I/O, no clock, no random, no log, no async; standard library only."""
