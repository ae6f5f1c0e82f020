"""The sandbox of a submission: a process that has it, and nothing of what judges it.

The worker holds inputs, references and verdict, and asks over a socket; only bytes in shared memory
and a description in JSON come back. It imports ``problems`` and what is below.
"""
