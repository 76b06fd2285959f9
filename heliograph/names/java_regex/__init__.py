"""Java's regular expressions, translated for the `regex` module."""
