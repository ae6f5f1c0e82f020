"""How a step of each kind is built, loaded and called: Python, Triton, CUDA, PTX, compiled.

It imports ``ptx`` and what is below; where a step runs is :mod:`kernelbench.executors`' to say.
"""
