"""The ways to compute `attend`: each has `attend(case)`, and `refusal(case)` if it can't do all."""
