"""Launching: the plan of a sweep or a search, its cells side by side or on a cluster, and its output."""
