"""Recovery commands: a plan first, changes only when asked for."""
