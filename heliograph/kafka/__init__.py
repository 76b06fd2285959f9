"""Speaks Kafka's protocol: bytes, connections, a cluster and its administration; knows nothing of mirroring."""
