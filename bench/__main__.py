"""Run every benchmark (`make bench`), or one of them: ``python -m bench NAME``."""

from __future__ import annotations

import os
import sys
from importlib import import_module

# Each benchmark is a module of this package; its ``main`` receives the arguments.
BENCHES = (
    "probes",
    "capacity",
    "search",
    "peers",
    "spending",
    "claims",
    "beds",
    "shared",
    "workers",
    "changes",
    "minimal",
    "page",
    "loading",
)


def main(name: str | None = None, *arguments: str) -> None:
    """Run the benchmark ``name`` with the given arguments, or else all benchmarks without arguments."""
    if name is not None and name not in BENCHES:
        sys.exit(f"there is no benchmark {name!r}; there is: {', '.join(BENCHES)}")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the same as in autotune's command line
    for known in BENCHES:
        if name in (None, known):
            print(f"\n== {known} ==\n", flush=True)
            import_module(f"bench.{known}").main(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
