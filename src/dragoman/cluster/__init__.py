"""Several brokers as one, on NATS: gossip, links between brokers, and jobs that run at another broker."""
