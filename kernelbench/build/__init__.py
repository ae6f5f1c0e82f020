"""Compiling: one content-addressed cache for every compiler.

It knows compilers and files, not what a step is for. It imports ``machine``, ``project`` and
``base``.
"""
