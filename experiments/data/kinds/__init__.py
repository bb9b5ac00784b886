"""One file, one kind of data: the folder is the list of those that a YAML of `conf/data/` can name."""
