"""The number of allowed flags per file, in `tests/prose_baseline.txt`, which must not grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from scripts.prose.surfaces import ROOT

FILE = ROOT / "tests" / "prose_baseline.txt"
HEAD = "# Flags of the prose standard by surface and file; `python -m scripts.prose --write` lowers them."
Place = tuple[str, str]  # surface and file


def read() -> Counter[Place]:
    """Return the allowed number of flags by surface and file."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    stored: Counter[Place] = Counter()
    for line in lines:
        if not line.startswith("#"):
            surface, path, count = line.split()
            stored[surface, path] = int(count)
    return stored


def write(counts: Mapping[Place, int], *, raised: bool) -> int:
    """Store counts that fell; with ``raised``, also store counts that rose. Return 1 if a count rose
    that was not stored.
    """
    stored = read()
    rose = {place: count for place, count in counts.items() if count > stored[place]}
    kept = dict(counts) if raised else {place: min(count, stored[place])
                                        for place, count in counts.items()}  # fmt: skip
    lines = [f"{surface} {path} {kept[surface, path]}" for surface, path in sorted(kept)
             if kept[surface, path]]  # fmt: skip
    FILE.write_text("\n".join([HEAD, *lines, ""]), encoding="utf-8")
    if raised or not rose:
        return 0
    for (surface, path), count in sorted(rose.items()):
        print(f"{path}: {count} flags in {surface}, {stored[surface, path]} allowed")
    return 1
