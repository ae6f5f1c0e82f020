"""Where a step runs and how it is loaded there: ``gpu``, ``gpu-soft``, ``emulator``, ``torch``.

It imports ``kinds`` and what is below. No other package asks which executor has a name.
"""
