"""The kinds of data, one file each. The folder is the list of kinds that a YAML of `conf/data/` can name."""
