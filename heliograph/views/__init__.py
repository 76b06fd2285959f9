"""Views of flows, topics and groups for people and programs. They only read."""
