"""Several brokers as one, on NATS: loaded only with `--cluster`."""
