"""The desk: all that may be asked of a broker besides calls and work, whatever the wire the question came by."""
