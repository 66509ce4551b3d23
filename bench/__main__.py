"""`make bench`: every benchmark in turn, as tables; ``python -m bench NAME`` for one of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from bench import capacity, claims, minimal, probes, search

BENCHES: Mapping[str, Callable[[Sequence[str]], None]] = {
    "probes": lambda _: probes.main(),
    "capacity": capacity.main,
    "search": search.main,
    "claims": claims.main,
    "minimal": minimal.main,
}


def main(name: str | None = None, *arguments: str) -> None:
    """Run the benchmark of this name with its arguments, or all of them as they are."""
    if name is not None and name not in BENCHES:
        sys.exit(f"there is no benchmark {name!r}; there is: {', '.join(BENCHES)}")
    for known, bench in BENCHES.items():
        if name in (None, known):
            print(f"\n== {known} ==\n", flush=True)
            bench(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
