"""What decides a claim: statistics of differences paired by seed, and the verdict that follows from them."""
