"""What a comparison takes if it is not told: level, margin, sessions, the resolution of a timer.

They stand alone, so that who only names them does not wait for scipy.
"""

from __future__ import annotations

#: Resolution of CUDA event times on the devices seen so far, in microseconds.
TICK_US = 0.032
#: Change below which nobody cares, as a fraction.
MARGIN = 0.005
#: Level of the tests.
ALPHA = 0.05
#: Fresh processes per comparison.
SESSIONS = 3
