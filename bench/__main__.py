"""`make bench`: every benchmark in turn, as tables."""

from __future__ import annotations

from bench import probes

if __name__ == "__main__":
    probes.main()
