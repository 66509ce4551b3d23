"""What holds for every test."""

from __future__ import annotations

import signal

# Started in the background, a shell's children ignore Ctrl-C, and so would every program under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
