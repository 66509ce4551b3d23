"""A shell script for each host: for those who have nothing but a shell there.

Contents travel as base64 and every name is quoted, so that nothing in a configuration is run.
"""

from __future__ import annotations

from autotune.export.host_files import SYSCTL_FILE, HostFile, hosts_of, kernel_file
from autotune.export.templates import filled
from autotune.report.studies import Study
from autotune.study.records import Trial


def shell(study: Study, trial: Trial) -> dict[str, bytes]:
    """``shell/HOST.sh`` for each host. Raises AutotuneError where there are none to configure."""
    hosts = hosts_of(study, trial)
    scripts = {}
    for host, units in hosts.units.items():
        files = list(hosts.of(host))
        sysctls = hosts.sysctls[host]
        if sysctls:
            files.append(HostFile(host, "", SYSCTL_FILE, kernel_file(sysctls), 0o644, None, {}))
        scripts[f"shell/{host}.sh"] = filled(
            "host.sh.j2",
            study=study.name,
            trial=trial.number,
            host=host,
            files=files,
            running=[unit for unit, runs in units.items() if runs],
            stopped=[unit for unit, runs in units.items() if not runs],
            sysctls=SYSCTL_FILE if sysctls else None,
        ).encode()
    return scripts
