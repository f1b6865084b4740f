"""Connected sockets: listen, accept, dial, read, write, close."""
