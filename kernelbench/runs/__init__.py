"""``kernelbench run`` without its rendering: from names to planned steps, from jobs to a record.

It imports ``worker`` and what is below.
"""
