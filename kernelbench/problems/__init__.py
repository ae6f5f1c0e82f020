"""The problems that ship. Nothing else knows them: a lineage names its problem.

They import ``executors`` and what is below; torch inside functions only.
"""
