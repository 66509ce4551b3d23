"""A shell script for each host: for those who have nothing but a shell there.

Contents travel as base64 and every name is quoted, so that nothing in a configuration is run.
"""

from __future__ import annotations

import base64
import shlex
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.deploy.render import shipped_templates
from autotune.report.exports.handed import SYSCTL_FILE, Handed, hosts_of, kernel_file
from autotune.report.studies import Study
from autotune.study.records import Trial

STAGED = ".autotune-new"


def shell(study: Study, trial: Trial) -> dict[str, bytes]:
    """``shell/HOST.sh`` for each host. Raises AutotuneError where there are none to configure."""
    hosts = hosts_of(study, trial)
    template = _environment().get_template("host.sh.j2")
    scripts = {}
    for host, units in hosts.units.items():
        files = list(hosts.of(host))
        sysctls = hosts.sysctls[host]
        if sysctls:
            files.append(Handed(host, "", SYSCTL_FILE, kernel_file(sysctls), 0o644, None, {}))
        scripts[f"shell/{host}.sh"] = template.render(
            study=study.name,
            trial=trial.number,
            host=host,
            files=files,
            running=[unit for unit, runs in units.items() if runs],
            stopped=[unit for unit, runs in units.items() if not runs],
            sysctls=SYSCTL_FILE if sysctls else None,
        ).encode()
    return scripts


def _command(check: tuple[str, ...], path: str) -> str:
    return shlex.join(f"{path}{STAGED}" if word == "%s" else word for word in check)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(shipped_templates() / "export")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701  a shell script, where every name is quoted for the shell
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "quoted": shlex.quote,
        "base64": lambda content: base64.encodebytes(content).decode().strip(),
        "directory": lambda path: path.rpartition("/")[0],
        "command": _command,
    }
    return environment
