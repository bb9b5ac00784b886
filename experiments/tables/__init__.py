"""Papers' tables: made as far as they are missing, rendered, and with a verdict on each claim.

`definition/` says what a table is, `sources/source.py` where its numbers come from, `verdicts/` what decides a claim,
`report.py` what is measured, and `rendering/` how that is shown.
"""
