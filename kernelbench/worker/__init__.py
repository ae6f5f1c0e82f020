"""Jobs in processes of their own: launcher, fork server, what workers do, and their messages.

Whatever a step does, the caller lives on. It imports ``isolation`` and what is below.
"""
