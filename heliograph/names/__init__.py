"""Decides about names of topics and groups: policies, filters, renaming, custom classes, Java's patterns."""
