"""The training loop and what it needs: optimizers, schedules, precision, guard, evaluation."""
