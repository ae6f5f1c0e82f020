"""What every part uses and no part owns: errors, console, files, JSON, TOML, schemas.

It imports nothing of kernelbench. Only :mod:`~kernelbench.base.console` imports rich.
"""
