"""Secures connections to a cluster: TLS, SASL, key and trust stores, tokens, from Java's client keys."""
