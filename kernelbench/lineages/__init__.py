"""Lineages as a whole: the tree, what changes between steps, new steps, submissions.

It imports ``bringup`` and what is below; it computes, ``report`` draws.
"""
