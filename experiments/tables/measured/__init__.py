"""What a table measures of trained models beside their loss: `measure(run, ...)` in a file each, a dict of numbers."""
