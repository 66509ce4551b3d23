"""`make bench`: every benchmark in turn, as tables; ``python -m bench NAME`` for one of them."""

from __future__ import annotations

import os
import sys
from importlib import import_module

# Each is a module here with a ``main`` that takes its arguments.
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
    """Run the benchmark of this name with its arguments, or all of them as they are."""
    if name is not None and name not in BENCHES:
        sys.exit(f"there is no benchmark {name!r}; there is: {', '.join(BENCHES)}")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does
    for known in BENCHES:
        if name in (None, known):
            print(f"\n== {known} ==\n", flush=True)
            import_module(f"bench.{known}").main(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
