"""The two paths of a fetched batch to a batch that is sent, and the merging of small ones."""
