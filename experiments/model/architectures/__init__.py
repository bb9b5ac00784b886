"""The architectures, one file each with a class `Architecture`. An objective names the file of its model."""
