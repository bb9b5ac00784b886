"""Results of many runs: found by name or settings, read fast, marked where a file has changed, laid out as rows."""
