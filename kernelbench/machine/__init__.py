"""What this machine is: compilers, GPUs, clocks and the environment that a record names.

It asks the driver through NVML and imports torch only where a record needs its version. It
imports ``records`` and what is below.
"""
