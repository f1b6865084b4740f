"""The server: configuration, listeners, connections and the runner."""
