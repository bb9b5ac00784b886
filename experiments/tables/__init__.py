"""The papers' tables: published numbers beside ours, and a verdict on every claim.

`definition/` defines a table, `sources/source.py` says where its numbers come from, `verdict.py` decides claims,
`report_of_cells.py` collects the measurements, and `rendering/` shows them.
"""
