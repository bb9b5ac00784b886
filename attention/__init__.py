"""The attention mechanisms, one file each; needs torch and nothing else."""
