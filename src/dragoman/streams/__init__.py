"""The one kind of socket: listen, accept, dial, read, gather writes, close."""
