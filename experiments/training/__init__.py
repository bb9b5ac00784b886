"""A run: its setup, the training loop, evaluation, checkpoints and result; `step/` has optimizers and precision."""
