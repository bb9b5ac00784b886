"""The renderings of a report: on the terminal, in files, on the comparison page, in W&B."""
