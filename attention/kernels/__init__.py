"""The ways to compute `attention.core.attend`: each has `attend(case)`, and `refusal(case)` if it can't do all."""
