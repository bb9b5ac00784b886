"""The kinds of task, one file each. Their settings are in `experiments/settings/finetuning.py`."""
