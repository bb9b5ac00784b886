"""The definition of a table: its YAML, the inequalities of its claims, the published numbers, and the user's
request.
"""
