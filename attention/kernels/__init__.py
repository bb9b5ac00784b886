"""The ways to compute `attend`: each has `attend(problem)`, and `refusal(problem)` if it can't do all."""
