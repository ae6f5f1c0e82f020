"""A GPU's first contact: parity of the ptx layer, open points, steps, times.

It imports ``inspection`` and what is below.
"""
