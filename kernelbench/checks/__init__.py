"""``kernelbench check`` without its rendering: a step under many schedules of the emulator.

It imports ``compare`` and what is below.
"""
