"""Runtime `systemd`: the distribution's services on hosts reached over SSH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from autotune.deploy.host import validate_all
from autotune.deploy.host_lock import look, oneself, why_stale
from autotune.deploy.host_state import ObservedUnit, ServiceManager, understood
from autotune.deploy.managed_hosts import ManagedHosts
from autotune.deploy.programs import installed
from autotune.deploy.runtime import Cases, Layout, NeedsPrograms, Note, Runtime
from autotune.deploy.stack import Stack, StackContext, build
from autotune.services.base import Own
from autotune.space.facts import HostFacts
from autotune.strict import split_lines, whole
from autotune.target.model import Target
from autotune.target.read import TargetFile
from autotune.transports.base import Transport
from autotune.transports.facts import facts
from autotune.transports.hosts import transports
from autotune.transports.parallel import run_on_all

# Account of Debian's web servers and PHP, and the directory for configuration checks on a host.
ACCOUNT = ("www-data", "www-data")
TRIALS = "/run/autotune"
DROP_INS = "/etc/systemd/system/"
ACTIVE = frozenset({"active", "activating", "reloading"})
_UNIT_LINES = 7


def parse_units(names: tuple[str, ...], text: str) -> dict[str, ObservedUnit]:
    """Parse the output of ``units`` for ``names``. Raises AutotuneError for invalid output."""
    with understood("units", text):
        blocks = [dict(line.split("=", 1) for line in split_lines(block))
                  for block in text.strip().split("\n\n") if block]  # fmt: skip
        if any(len(block) != _UNIT_LINES for block in blocks):
            raise ValueError(f"expected {_UNIT_LINES} lines per unit")
        return {name: _unit(block) for name, block in zip(names, blocks, strict=True)}


def _unit(block: Mapping[str, str]) -> ObservedUnit:
    return ObservedUnit(
        exists=block["LoadState"] not in ("not-found", "error"),
        active=block["ActiveState"] in ACTIVE,
        enabled=block["UnitFileState"],
        pid=whole(block["MainPID"]),
        restarts=whole(block["NRestarts"]),
        restarting=block["SubState"] == "auto-restart",
    )


class UnitLayout(Layout):
    """Layout with the distribution's files and units."""

    def defines(self, path: str) -> str | None:
        return (
            path.removeprefix(DROP_INS).partition(".d/")[0] if path.startswith(DROP_INS) else None
        )


SERVICE_MANAGER = ServiceManager(
    Path(__file__).with_suffix(".sh").read_text(encoding="utf-8"), parse_units, DROP_INS
)


class Systemd(Runtime):
    """Runtime for the distribution's units, which autotune reconfigures and restores."""

    installed = True
    layout = UnitLayout()
    service_manager = SERVICE_MANAGER

    def transports(self, file: TargetFile) -> dict[str, Transport]:
        return transports(file)

    def facts(self, target: Target, transports: Mapping[str, Transport]) -> dict[str, HostFacts]:
        return facts(target, transports, units=True)

    def programs(
        self,
        needed: Mapping[str, Sequence[NeedsPrograms]],
        transports: Mapping[str, Transport],
    ) -> dict[str, dict[str, str]]:
        return run_on_all(
            [transports[host] for host, needing in needed.items() if needing],
            lambda transport: installed(transport, needed[transport.name]),
        ).unwrap()

    def lay_out(
        self,
        file: TargetFile,
        directory: str,
        facts: Mapping[str, HostFacts],
        programs: Mapping[str, Mapping[str, str]],
        own: Mapping[str, Own],
    ) -> Stack:
        """Return the stack. No file is private, so ``directory`` stays empty."""
        context = StackContext(TRIALS, {}, programs, facts, *ACCOUNT, installed=True, own=own)
        return build(file.target, context)

    def refusals(self, transport: Transport, cases: Cases) -> list[str | None]:
        return validate_all(transport, cases)

    def status(self, stack: Stack, transports: Mapping[str, Transport]) -> Iterator[str]:
        """Yield the reachable hosts, and the hosts that another tuner has locked."""
        yield f"reachable, as root: {', '.join(stack.hosts)}"
        here = oneself("").place
        for host in stack.hosts:
            lock = look(transports[host])
            if lock.record and why_stale(lock, here) is None:
                yield f"{host}: locked by {lock.holder}, so a run would be refused now"

    def run_directory(self, study: Path) -> str:
        return TRIALS

    def hosts(
        self, stack: Stack, transports: Mapping[str, Transport], study: Path, note: Note
    ) -> ManagedHosts:
        return ManagedHosts(
            [transports[host] for host in stack.hosts], study, note, self.service_manager
        )


RUNTIME = Systemd()
