"""Turns fetched batches into batches to send: whole, merged, or record by record."""
