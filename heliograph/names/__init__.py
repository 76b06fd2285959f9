"""What decides about names of topics and groups: policies, filters, renaming, classes of one's own, Java's patterns."""
