"""The benchmark compares MirrorMaker 2 and heliograph on the same topics, on this machine. `python -m bench --help`."""
