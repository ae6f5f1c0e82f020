"""Jobs in processes of their own: launcher, child, and the messages between them.

Whatever a step does, the caller lives on. It imports ``measure`` and what is below.
"""
