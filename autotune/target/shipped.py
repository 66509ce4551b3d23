"""What ships with autotune beside its code."""

from __future__ import annotations

from pathlib import Path


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
