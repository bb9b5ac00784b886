"""Results of many runs: found, read fast, marked where a file has changed, laid out as rows, compared over seeds."""
