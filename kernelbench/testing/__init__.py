"""A plug-in for pytest: kernels as test cases of other repositories.

It calls the library as any user does, and may import everything but ``cli``.
"""
