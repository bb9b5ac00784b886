"""The objectives, one file each. The files of this folder are the values that `objective=` can take."""
