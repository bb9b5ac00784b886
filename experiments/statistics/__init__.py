"""Statistics of differences paired by seed: intervals, p-values, and the words that they allow."""
