"""Statistics of differences paired by seed: intervals, p-values and verdicts."""
