"""Encodes and decodes the hot requests by hand: one file per request, bytes in, bytes out."""
