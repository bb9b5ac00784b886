"""What a table is: its YAML, the inequalities of its claims, what the paper printed, and what the user asks of it."""
