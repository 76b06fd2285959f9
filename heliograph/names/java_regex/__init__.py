"""Translates Java's regular expressions for the `regex` module."""
