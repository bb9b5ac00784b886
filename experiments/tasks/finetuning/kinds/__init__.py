"""The kinds of task, one file each: the folder is the list of them."""
