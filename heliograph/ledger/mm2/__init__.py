"""MirrorMaker 2's own formats and rules: stored positions, offset syncs, checkpoints, heartbeats, byte for byte."""
