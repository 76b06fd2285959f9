"""What is known of flows and groups, for people and programs that ask. Reads only."""
