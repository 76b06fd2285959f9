"""The state of flows on a target cluster: records, runs, counts, leases, losses, and how offsets translate by them."""
