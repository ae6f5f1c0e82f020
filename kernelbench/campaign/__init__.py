"""Campaigns: many independent commands from one file, spread over processes, GPUs and hosts.

A *campaign* is a file that says what to run. A *piece* of it is one command of kernelbench, with a
key made of all that it depends on. A *pool* runs pieces, and knows nothing of what they mean: this
process alone, or the workers of a Dask cluster. Only this package imports ``distributed``.
"""
