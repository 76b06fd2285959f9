"""Readers of configuration files: property files, resources, and the common parts that both become."""
