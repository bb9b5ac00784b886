"""The papers' tables: published numbers beside ours, and a verdict on every claim.

`definition/` says what a table is, `sources/source.py` where its numbers come from, `verdicts/` what decides a claim,
`report.py` what is measured, and `rendering/` how that is shown.
"""
