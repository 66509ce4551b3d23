"""Runtime `systemd`: the distribution's services, on hosts that are reached over SSH."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autotune.deploy.file_values import read_file_values
from autotune.deploy.host_lock import current_holder, find_stale_reason, read_lock
from autotune.deploy.host_state import ObservedUnit, ServiceManager, wrap_parse_errors
from autotune.deploy.managed_hosts import ManagedHosts
from autotune.deploy.programs import find_installed_programs
from autotune.deploy.runtime import (
    NoteCallback,
    ProgramUser,
    Runtime,
    RuntimeLayout,
    ValidationCases,
)
from autotune.deploy.stack import Stack, StackContext, build_stack
from autotune.deploy.staged_cases import validate_cases
from autotune.deploy.unit_start import MAX_STOP_SECONDS, USUAL_STOP_SECONDS
from autotune.services.base import AdoptedConfig, Service, Value
from autotune.space.facts import HostFacts
from autotune.strict_parsing import parse_uint, split_lines
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import read_facts
from autotune.transports.parallel_hosts import run_on_all
from autotune.transports.target_hosts import create_transports

# The account of Debian's web servers and PHP, and the directory for configuration checks on a host.
WEB_ACCOUNT = ("www-data", "www-data")
VALIDATION_DIRECTORY = "/run/autotune"
UNIT_DIRECTORY = "/etc/systemd/system/"
ACTIVE_STATES = frozenset({"active", "activating", "reloading"})
_LINES_PER_UNIT = 7
# A time as systemd prints it, such as "1min 30s"
_TIME_PATTERN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(us|ms|s|min|h|d)\b")
_SECONDS_PER_UNIT = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_units(unit_names: tuple[str, ...], units_output: str) -> dict[str, ObservedUnit]:
    """Return the state of each unit in ``unit_names``, from the output of the shell function ``units``.
    Raises AutotuneError for invalid output.
    """
    with wrap_parse_errors("units", units_output):
        property_blocks = [
            dict(line.split("=", 1) for line in split_lines(property_block))
            for property_block in units_output.strip().split("\n\n")
            if property_block
        ]
        if any(len(property_block) != _LINES_PER_UNIT for property_block in property_blocks):
            raise ValueError(f"expected {_LINES_PER_UNIT} lines per unit")
        return {
            name: _parse_unit(property_block)
            for name, property_block in zip(unit_names, property_blocks, strict=True)
        }


def _parse_unit(unit_properties: Mapping[str, str]) -> ObservedUnit:
    return ObservedUnit(
        exists=unit_properties["LoadState"] not in ("not-found", "error"),
        active=unit_properties["ActiveState"] in ACTIVE_STATES,
        enabled=unit_properties["UnitFileState"],
        pid=parse_uint(unit_properties["MainPID"]),
        restarts=parse_uint(unit_properties["NRestarts"]),
        restarting=unit_properties["SubState"] == "auto-restart",
        stop_seconds=_parse_stop_seconds(unit_properties.get("TimeoutStopUSec", "")),
    )


def _parse_stop_seconds(time_text: str) -> float:
    """Return the time that systemd gives a unit to stop, in seconds, at most ``MAX_STOP_SECONDS``."""
    if time_text == "infinity":
        return MAX_STOP_SECONDS
    time_parts = _TIME_PATTERN.findall(time_text)
    seconds = sum(float(number) * _SECONDS_PER_UNIT[name] for number, name in time_parts)
    return min(seconds, MAX_STOP_SECONDS) if time_parts else USUAL_STOP_SECONDS


class UnitLayout(RuntimeLayout):
    """The layout of the distribution's files and units."""

    def unit_defined_by(self, path: str) -> str | None:
        return (
            path.removeprefix(UNIT_DIRECTORY).partition(".d/")[0]
            if path.startswith(UNIT_DIRECTORY)
            else None
        )

    def can_reload(self, service: Service) -> bool:
        return service.unit_reloads or super().can_reload(service)


SERVICE_MANAGER = ServiceManager(
    Path(__file__).with_suffix(".sh").read_text(encoding="utf-8"), parse_units, UNIT_DIRECTORY
)


class Systemd(Runtime):
    """Runtime for the distribution's units, which autotune reconfigures and restores."""

    installed = True
    layout = UnitLayout()
    service_manager = SERVICE_MANAGER

    def create_transports(self, file: TargetFile) -> dict[str, Transport]:
        return create_transports(file)

    def read_facts(
        self, target: Target, transports: Mapping[str, Transport]
    ) -> dict[str, HostFacts]:
        return read_facts(target, transports, units=True)

    def find_programs(
        self,
        needed: Mapping[str, Sequence[ProgramUser]],
        transports: Mapping[str, Transport],
    ) -> dict[str, dict[str, str]]:
        return run_on_all(
            [transports[host] for host, program_users in needed.items() if program_users],
            lambda transport: find_installed_programs(transport, needed[transport.name]),
        ).unwrap()

    def build_stack(
        self,
        file: TargetFile,
        directory: str,
        facts: Mapping[str, HostFacts],
        programs: Mapping[str, Mapping[str, str]],
        adopted_configs: Mapping[str, AdoptedConfig],
    ) -> Stack:
        """Return the stack of a target. All files are the distribution's, so ``directory`` is not
        used.
        """
        context = StackContext(
            VALIDATION_DIRECTORY,
            {},
            programs,
            facts,
            *WEB_ACCOUNT,
            installed=True,
            adopted=adopted_configs,
        )
        return build_stack(file.target, context)

    def find_validation_errors(
        self, transport: Transport, cases: ValidationCases
    ) -> list[str | None]:
        return validate_cases(transport, cases)

    def read_file_values(
        self, transport: Transport, cases: ValidationCases
    ) -> list[Mapping[str, Value]]:
        return read_file_values(transport, cases)

    def describe_hosts(self, stack: Stack, transports: Mapping[str, Transport]) -> Iterator[str]:
        """Yield a line with the reachable hosts, and a line for each host that another tuner has
        locked.
        """
        yield f"reachable, as root: {', '.join(stack.hosts)}"
        local_place = current_holder("").place
        for host in stack.hosts:
            lock = read_lock(transports[host])
            if lock.record and find_stale_reason(lock, local_place) is None:
                yield f"{host}: locked by {lock.holder}, so a run would be refused now"

    def make_run_directory(self, study: Path) -> str:
        return VALIDATION_DIRECTORY

    def create_hosts(
        self, stack: Stack, transports: Mapping[str, Transport], study: Path, note: NoteCallback
    ) -> ManagedHosts:
        return ManagedHosts(
            [transports[host] for host in stack.hosts], study, note, self.service_manager
        )


RUNTIME = Systemd()
