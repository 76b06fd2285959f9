"""Questions and orders to a cluster: topics, settings, access rules, groups and their commits, users."""
