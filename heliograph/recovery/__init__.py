"""Acts of recovery: a plan first, and the act only when asked for."""
