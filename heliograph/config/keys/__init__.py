"""Knows every key: the table, types and values, and the check of a written key."""
