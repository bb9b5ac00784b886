"""Every setting with its type and range, one file a group of `conf/`, and the folders of the user's that add kinds.

The values are in `conf/`; nothing here has a default. One file a group makes more files than in other packages.
"""
