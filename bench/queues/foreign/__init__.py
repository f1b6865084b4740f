"""What the clients and workers of other task queues run. Their packages live in an environment of the bench's own."""
