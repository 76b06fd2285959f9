"""Administers a cluster: topics, configs, ACLs, groups and their commits, users."""
