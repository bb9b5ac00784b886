"""How a report is shown: on the terminal, in files, on the comparison page, in W&B."""
