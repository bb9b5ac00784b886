"""Results of many runs: run folders by name, an index to read them fast, and marks where a file has changed."""
