"""A project on disk: its file, lineages, steps and shapes, and the protocol of a problem.

The only registry of steps is here. It imports ``base``; a problem is loaded by the name that its
lineage gives.
"""
