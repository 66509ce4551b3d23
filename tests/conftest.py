"""What holds for every test."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# The same examples every time, however slow the machine: a failure here is a failure there.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# Started in the background, a shell's children ignore Ctrl-C, and so would every program under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
