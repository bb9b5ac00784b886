"""Every setting with its type and range, one file a group, and the base of all packages: mistakes, digests, files.

The values are in `conf/`; nothing here has a default. One file a group makes more files than in other packages.
"""
