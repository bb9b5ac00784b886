"""Ends of a command that are not bugs, their exit codes, and the words of their messages."""
