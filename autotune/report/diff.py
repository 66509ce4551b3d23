"""Differences between two trials: rendered files or parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path, PurePath

from autotune import foreign_files
from autotune.errors import AutotuneError
from autotune.masking import Outliner, masked_beside, masked_bytes, nothing
from autotune.report import format as fmt
from autotune.report.parameters import NONE, Declared, changes, declared
from autotune.report.studies import Study
from autotune.report.view import conclusion
from autotune.services.registry import named, outliner
from autotune.study import origin
from autotune.study.records import State, Trial
from autotune.target.messages import nearest
from autotune.target.read import read_recorded
from autotune.terminal import Line
from autotune.transports.parallel import run_on_all
from autotune.unified_diff import Files, file_diff

HOSTS = "hosts"
STYLES = {"+": "green", "-": "red", "@": "cyan"}


def diff_text(
    study: Study, a: str = "baseline", b: str = "best", *, parameters: bool = False
) -> str:
    """Return a unified diff from ``a`` to ``b``: a trial number, ``baseline``, ``best`` or ``hosts``.

    ``hosts`` means the current files on the hosts. The diff compares files, as input for
    `patch -p1`. With ``parameters``, it compares the settings that have an effect. It is empty if both
    sides are equal. Raises AutotuneError for a trial that does not exist or was never deployed.
    """
    if HOSTS in (a, b):
        trial = trial_named(study.state, b if a == HOSTS else a)
        tree = rendered(study.directory, trial)
        now, named = on_hosts(study, tree), f"trial-{trial.number}"
        if a == HOSTS:
            return file_diff(now, tree, HOSTS, named)
        return file_diff(tree, now, named, HOSTS)
    before, after = trial_named(study.state, a), trial_named(study.state, b)
    if parameters:
        return parameter_diff(before, after, declared(study.target))
    files = rendered(study.directory, before), rendered(study.directory, after)
    return file_diff(*files, f"trial-{before.number}", f"trial-{after.number}")


def on_hosts(study: Study, files: Files) -> dict[str, bytes]:
    """Return the current content of ``files`` on the hosts, by the same names, with secrets masked.

    Raises AutotuneError for a study without hosts or from another account, and HostUnreachable.
    """
    if study.target.simulated or not all(t.installed for t in study.target.tiers.values()):
        raise AutotuneError(
            "this study's private servers have stopped",
            hint="compare two trials instead, such as 0 and best",
        )
    origin.check_own(
        study.directory, "compare two trials instead: `autotune diff {study} baseline best`"
    )
    from autotune.deploy.host import contents
    from autotune.transports.hosts import transport

    paths: dict[str, dict[str, str]] = {}
    for name in files:
        part, _, path = name.partition("/")
        paths.setdefault(part.split(".")[1], {})[f"/{path}"] = name
    target = read_recorded(study.directory)
    file = replace(target, document=replace(target.document, path=study.source))
    by_host = run_on_all(
        [transport(file, host) for host in paths], lambda t: contents(t, list(paths[t.name]))
    ).unwrap()
    return {name: masked_beside(content, files[name], _outliner(name, path))
            for host, present in by_host.items() for path, content in present.items()
            for name in (paths[host][path],)}  # fmt: skip


def _outliner(name: str, path: str) -> Outliner:
    """Return the masking function for a file of the service that its part name ends with."""
    services = named(name.partition("/")[0].rpartition(".")[2])
    return next(filter(None, (outliner(service, path) for service in services)), nothing)


def trial_named(state: State, name: str) -> Trial:
    """Return the trial that ``baseline``, ``best`` or a number refers to. Raises AutotuneError."""
    if name in ("baseline", "best"):
        side = conclusion(state).sides.get(name)
        if side is None:
            raise AutotuneError(f"this study has no {name} yet", hint=_names(state))
        return side.trial
    for trial in state.trials:
        if str(trial.number) == name.removeprefix("#"):
            return trial
    similar = nearest(name, ("baseline", "best"))
    hint = f"did you mean {similar!r}? {_names(state)}" if similar else _names(state)
    raise AutotuneError(f"unknown trial {name!r}", hint=hint)


def _names(state: State) -> str:
    numbers = [trial.number for trial in state.trials]
    if not numbers:
        return "the study has no trials yet"
    return f"expected one of: baseline, best, {min(numbers)} to {max(numbers)}"


def rendered(directory: Path, trial: Trial) -> dict[str, bytes]:
    """Return the files of a trial as deployed: ``part/path`` → content.

    A repeat shares the files of the trial that it repeats. Raises AutotuneError if the trial was not
    deployed, or if a file differs from its recorded digest.
    """
    for number in (trial.number, trial.of):
        top = PurePath("configs", str(number))
        if number is not None and foreign_files.exists(directory, top):
            contents = {path: foreign_files.read_bytes(directory, top / path, foreign_files.RECORD)
                        for path in foreign_files.files_below(directory, top)}  # fmt: skip
            _check_digests(trial, directory / top, contents)
            return {path: masked_bytes(content) for path, content in contents.items()}
    reason = f": {trial.failure}" if trial.failure else ""
    raise AutotuneError(
        f"trial {trial.number} was not deployed{reason}",
        hint="use `--parameters` to compare its settings",
    )


def _check_digests(trial: Trial, directory: Path, contents: Files) -> None:
    """Raise AutotuneError if a file is missing or changed since it was measured."""
    for path, digest in sorted(trial.files.items()):
        if path not in contents or sha256(contents[path]).hexdigest() != digest:
            what = "differs from the deployed file" if path in contents else "is missing"
            raise AutotuneError(
                f"{directory / path} {what} (trial {trial.number} recorded its digest)",
                hint="restore the study's directory from a copy. `autotune diff --parameters` and "
                "`autotune report` still work",
            )


def parameter_diff(before: Trial, after: Trial, own: Declared = NONE) -> str:
    """Return the settings that differ and have an effect in ``after``, as diff lines."""
    lines = []
    for change in changes(before.in_effect, after.in_effect, own):
        if change.before is not None:
            lines.append(f"-{change.name}: {fmt.setting(change.before, change.unit)}\n")
        lines.append(f"+{change.name}: {fmt.setting(change.after, change.unit)}\n")
    if not lines:
        return ""
    return f"--- trial-{before.number}\n+++ trial-{after.number}\n" + "".join(lines)


def diff_lines(text: str) -> Iterator[Line]:
    """Yield the lines of a unified diff with their terminal styles."""
    for line in text.removesuffix("\n").split("\n") if text else ():
        bold = line.startswith(("--- ", "+++ "))
        yield line, "bold" if bold else STYLES.get(line[:1], "")
