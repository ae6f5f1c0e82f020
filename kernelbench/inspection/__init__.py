"""What compilers and NVIDIA's tools say of a step and a machine: registers, sanitizer, doctor.

Also the code lock and the profile. It imports ``checks`` and what is below.
"""
