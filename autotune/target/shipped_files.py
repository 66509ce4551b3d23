"""Files that ship with autotune, and copies of the example targets."""

from __future__ import annotations

from pathlib import Path

from autotune.errors import AutotuneError, UsageError
from autotune.target.messages import suggest_name


def find_shipped_directory(name: str) -> Path:
    """Return the path of a directory that ships with autotune (``templates``, ``targets``), in an
    installation or a checkout.
    """
    package = Path(__file__).resolve().parent.parent
    installed_directory = package / "_shipped" / name
    return installed_directory if installed_directory.is_dir() else package.parent / name


def list_examples() -> dict[str, Path]:
    """Return the example targets by name."""
    targets = {path.stem: path for path in find_shipped_directory("targets").glob("*.yaml")}
    return dict(sorted(targets.items()))


def write_example(name: str, out: Path) -> Path:
    """Copy an example target and its programs to ``out``.

    Raises UsageError for an unknown example, or AutotuneError if a file already exists.
    """
    shipped_targets = list_examples()
    if name not in shipped_targets:
        raise UsageError(f"unknown example {name!r}", hint=suggest_name(name, shipped_targets))
    source = shipped_targets[name]
    programs = [path for path in source.parent.glob(f"{name}.*") if path != source]
    copies = {out: source, **{out.parent / path.name: path for path in programs}}
    for copy in copies:
        if copy.exists():
            raise AutotuneError(f"{copy} already exists", hint="name another file with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    for copy, path in reversed(copies.items()):
        copy.write_bytes(path.read_bytes())
    return out
