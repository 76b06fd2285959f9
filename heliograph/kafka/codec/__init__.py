"""Hand-written codecs of the hot requests: one file per request, bytes in, bytes out."""
