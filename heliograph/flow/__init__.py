"""One flow on the driver: opening, topics and their mapping, the table of partitions, the lease, losses, restarts."""
