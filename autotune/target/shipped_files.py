"""Files that ship with autotune, and copies of the example targets."""

from __future__ import annotations

from pathlib import Path

from autotune import durable_files
from autotune.errors import UsageError
from autotune.target.messages import suggest_name


def find_shipped_directory(directory_name: str) -> Path:
    """Return the path of a directory that ships with autotune (``templates``, ``targets``), in an
    installation or a checkout.
    """
    package = Path(__file__).resolve().parent.parent
    installed_directory = package / "_shipped" / directory_name
    return installed_directory if installed_directory.is_dir() else package.parent / directory_name


def list_examples() -> dict[str, Path]:
    """Return the example targets by name."""
    targets = {path.stem: path for path in find_shipped_directory("targets").glob("*.yaml")}
    return dict(sorted(targets.items()))


def write_example(example_name: str, target_path: Path) -> bool:
    """Copy an example target and its programs to ``target_path``.

    Return false if these files already exist with the same content, as in a checkout. Raises UsageError
    for an unknown example, or if a file exists with other content.
    """
    shipped_targets = list_examples()
    if example_name not in shipped_targets:
        raise UsageError(
            f"unknown example {example_name!r}", hint=suggest_name(example_name, shipped_targets)
        )
    source = shipped_targets[example_name]
    programs = [path for path in source.parent.glob(f"{example_name}.*") if path != source]
    copies = {target_path: source, **{target_path.parent / path.name: path for path in programs}}
    missing_copies = {
        copy_path: path for copy_path, path in copies.items() if not _has_content(copy_path, path)
    }
    for copy_path in missing_copies:
        if copy_path.exists():
            raise UsageError(f"{copy_path} already exists", hint="name another file with --out")
    target_path.parent.mkdir(parents=True, exist_ok=True)
    for copy_path, path in reversed(missing_copies.items()):
        durable_files.create_file(copy_path, path.read_bytes())
    return bool(missing_copies)


def _has_content(copy_path: Path, path: Path) -> bool:
    return copy_path.is_file() and copy_path.read_bytes() == path.read_bytes()
