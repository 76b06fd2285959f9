"""Kafka, spoken on the wire: bytes, connections, a cluster and its administration; knows nothing of mirroring."""
