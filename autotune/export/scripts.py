"""Shell scripts and patches that make a trial's changes on each host.

Names are quoted and file contents are here-documents, so that the shell runs no text from a
configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

from autotune.deploy.backup import SYSCTL_FILE
from autotune.deploy.host_state import format_sysctl_file
from autotune.errors import AutotuneError
from autotune.export.escaping import escape_line, fill_template
from autotune.export.host_files import (
    ABSENT_DIGEST,
    MODEL_NOTICE,
    ExportedHosts,
    HostFile,
    group_by_host,
    read_baseline,
)
from autotune.report.studies import Study
from autotune.study.study_state import Trial
from autotune.unified_diff import format_edit_diff, format_file_diff


def export_shell(study: Study, trial: Trial, hosts: ExportedHosts) -> dict[str, bytes]:
    """Return ``shell/HOST.sh`` for each host that changes."""
    notice = MODEL_NOTICE if study.target.simulated else None
    return {
        f"shell/{host}.sh": build_script(format_title(study, trial), host, hosts, notice).encode()
        for host in hosts.units
    }


def format_title(study: Study, trial: Trial) -> str:
    """Return the title of an export, on one line."""
    return f"Configuration of trial {trial.number} of study {escape_line(study.name)}"


def build_script(heading: str, host: str, hosts: ExportedHosts, notice: str | None = None) -> str:
    """Return the shell script that applies the configuration on one host. The script needs root, a
    POSIX shell, systemd and GNU tools.
    """
    units, files = hosts.units[host], hosts.list_files(host)
    return fill_template(
        "host.sh.j2",
        title=heading,
        notice=notice,
        host=host,
        files=files,
        checks=_group_checks(files),
        running=[unit for unit, runs in units.items() if runs],
        starting=[unit for unit, runs in units.items() if runs and hosts.needs_start(host, unit)],
        reloading=[
            unit for unit, runs in units.items() if runs and hosts.needs_reload_only(host, unit)
        ],
        stopped=[unit for unit, runs in units.items() if not runs],
        sysctls=hosts.sysctls[host],
        kernel_file=SYSCTL_FILE,
    )


def _group_checks(files: Iterable[HostFile]) -> list[tuple[list[int], tuple[str, ...]]]:
    """Return each validation command, with the numbers (from 1) of the files that the command
    validates.
    """
    numbers: dict[tuple[str, ...], list[int]] = {}
    for number, file in enumerate(files, 1):
        if file.check:
            numbers.setdefault(file.check, []).append(number)
    return [(file_numbers, check_command) for check_command, file_numbers in numbers.items()]


def export_patch(study: Study, trial: Trial, hosts: ExportedHosts) -> dict[str, bytes]:
    """Return ``patch/HOST.patch`` for ``patch -p1 -d /``, and the expected digests for ``sha256sum
    -c``.

    If a host's changed lines contain masked values, the host gets ``patch/HOST.patch.sh`` instead, a
    script that prints the patch on the host. Raises AutotuneError if a file's original content is not
    recorded.
    """
    baseline = read_baseline(study)
    baseline_files = group_by_host(baseline[1]) if baseline else {}
    notice = MODEL_NOTICE if study.target.simulated else None
    patch_files: dict[str, bytes] = {}
    for host in hosts.units:
        heading = format_title(study, trial)
        if has_masked_edits(hosts, host):
            script = build_patch_script(heading, host, hosts, notice)
            patch_files[f"patch/{host}.patch.sh"] = script.encode()
        else:
            diff = _build_host_diff(heading, host, hosts, notice, baseline_files)
            patch_files[f"patch/{host}.patch"] = diff.encode("utf-8", "surrogateescape")
        digests = "".join(
            f"{file.original}  {file.path}\n"
            for file in hosts.list_files(host)
            if file.original not in (None, ABSENT_DIGEST)
        )
        patch_files[f"patch/{host}.paths.sh"] = build_safe_paths(host, hosts, notice).encode()
        patch_files[f"patch/{host}.sha256"] = f"{_format_notice(notice)}{digests}".encode()
    return patch_files


def has_masked_edits(hosts: ExportedHosts, host: str) -> bool:
    """True if any changed line on a host contains masked values."""
    return any(file.has_masked_edits for file in hosts.list_files(host))


def build_patch_script(
    heading: str, host: str, hosts: ExportedHosts, notice: str | None = None
) -> str:
    """Return the script that prints one host's patch with its masked values filled in."""
    return fill_template(
        "patch.sh.j2",
        title=heading,
        notice=notice,
        host=host,
        files=hosts.list_files(host),
        sysctls=hosts.sysctls[host],
        kernel_file=SYSCTL_FILE,
    )


def _build_host_diff(
    heading: str,
    host: str,
    hosts: ExportedHosts,
    notice: str | None,
    baseline_contents: Mapping[tuple[str, str, str], bytes],
) -> str:
    diffs = [f"{heading}, for {host}\n{_format_notice(notice)}"]
    diffs += [
        _build_diff(file, baseline_contents.get((file.tier, file.host, file.path)))
        for file in hosts.list_files(host)
    ]
    if values := hosts.sysctls[host]:
        sysctl_path = SYSCTL_FILE.removeprefix("/")
        diffs.append(format_file_diff({}, {sysctl_path: format_sysctl_file(values)}, "a", "b"))
    return "".join(diffs)


def _format_notice(notice: str | None) -> str:
    return f"# {notice}\n" if notice else ""


def _build_diff(file: HostFile, recorded_content: bytes | None) -> str:
    """Return the unified diff of a file against ``recorded_content``, its content in the baseline. Raises
    AutotuneError.
    """
    relative_path = file.path.removeprefix("/")
    if file.edits is not None:
        return format_edit_diff(relative_path, file.edits)
    old_content = None if file.original == ABSENT_DIGEST else recorded_content
    digest = ABSENT_DIGEST if old_content is None else sha256(old_content).hexdigest()
    if digest != (file.original or ABSENT_DIGEST):
        raise AutotuneError(
            f"the original content of {file.path} on {file.host} is not recorded",
            hint="use --format ansible or shell",
        )
    return format_file_diff(
        {relative_path: old_content} if old_content is not None else {},
        {relative_path: file.content},
        "a",
        "b",
    )


def build_safe_paths(host: str, hosts: ExportedHosts, notice: str | None) -> str:
    """Return a script that fails if an account other than root can change a path in the patch."""
    kernel_paths = [SYSCTL_FILE] if hosts.sysctls[host] else []
    paths = [*dict.fromkeys(file.path for file in hosts.list_files(host)), *kernel_paths]
    return fill_template("safe_paths.sh.j2", paths=paths, notice=notice)
