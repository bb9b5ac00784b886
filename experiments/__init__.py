"""What turns an attention mechanism into a number: each room knows only the rooms below it."""
