"""The mirrors of the run folder: other places where a run can be watched, such as W&B."""
