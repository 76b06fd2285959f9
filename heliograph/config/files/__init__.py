"""The files that people bring, read: property files, resources, and what both are made into."""
