"""What stands on a target cluster and what it means: entries, runs, counts, leases, losses, and who may read them."""
