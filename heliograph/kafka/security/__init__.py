"""How a cluster is reached safely: TLS, SASL, key and trust stores, tokens, from Java's client keys."""
