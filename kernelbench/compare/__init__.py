"""Two steps against each other: ``ab``, ``calibrate``, the gates and their reports.

It imports ``runs`` and what is below.
"""
