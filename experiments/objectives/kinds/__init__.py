"""One file, one objective: the folder is the list of those that `objective=` can name."""
