"""From samples to statements: blocks, tests, inference, calibration.

Nothing here measures or prints. It imports numpy, scipy, ``records`` and what is below.
"""
