"""What ships with autotune beside its code, and copies of it to start from."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import AutotuneError
from autotune.target.messages import instead


def shipped(name: str) -> Path:
    """A directory that ships with autotune (``templates``, ``targets``): in the installed package,
    or in the checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_shipped" / name
    return installed if installed.is_dir() else package.parent / name


def examples() -> dict[str, Path]:
    """The targets to start from, by name."""
    targets = {path.stem: path for path in shipped("targets").glob("*.yaml")}
    return dict(sorted(targets.items()))


def write_example(name: str, out: Path) -> Path:
    """Copy a shipped target to ``out``, with the programs it calls beside it.

    Raises AutotuneError for an unknown one or a file there.
    """
    known = examples()
    if name not in known:
        raise AutotuneError(f"there is no example {name!r}", hint=instead(name, known))
    files = {out.parent / own.name: own for own in known[name].parent.glob(f"{name}.*")}
    files = {place: own for place, own in files.items() if own != known[name]}
    for place in (out, *files):
        if place.exists():
            raise AutotuneError(f"{place} exists already", hint="name another file with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    for place, own in {**files, out: known[name]}.items():
        place.write_bytes(own.read_bytes())
    return out
