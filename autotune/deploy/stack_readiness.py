"""Wait until a whole stack responds correctly and its load balancers use all servers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from autotune.deploy import readiness
from autotune.deploy.backends import ServersDown, ServerWatch, describe_down_servers
from autotune.deploy.boot_times import BootTimes
from autotune.deploy.host_state import ServiceManager
from autotune.deploy.read_back import StackNotReady
from autotune.deploy.readiness import ANY_RIGHT_ANSWER, Answer, RightAnswer
from autotune.deploy.runtime import LockedHosts, NoteCallback
from autotune.deploy.stack import Stack
from autotune.services.base import Settings
from autotune.transports import wait_notices
from autotune.transports.base import Transport
from autotune.transports.request import Request

POLL_SECONDS = 1.0  # seconds between two checks of a load balancer's servers
READY_HINT = (
    "set `ready:` in the target, such as `ready: 5m`, if the stack needs more time to start"
)


@dataclass(frozen=True)
class EntryProbe:
    """The request that shows whether the whole stack is ready.

    ``send()`` sends one request to every entry and returns the first wrong response, or else the
    last response. ``right`` describes a correct response. ``page`` is the same request, for checks
    that run on the hosts; ``None`` disables these checks. ``min_interval`` is the shortest time
    between two requests in seconds.
    """

    send: Callable[[], Answer]
    right: RightAnswer = ANY_RIGHT_ANSWER
    page: Request | None = None
    min_interval: float = 0.0


class StackReadiness:
    """The readiness of a stack: requests to its entries, and the servers behind its load balancers.

    ``boot_times`` records how long the stack takes. ``note`` receives lines about progress.
    """

    def __init__(
        self,
        stack: Stack,
        hosts: LockedHosts,
        service_manager: ServiceManager | None,
        probe: EntryProbe,
        boot_times: BootTimes,
        note: NoteCallback,
    ) -> None:
        self.probe, self.boot_times = probe, boot_times
        self._stack, self._hosts, self._note = stack, hosts, note
        self._server_watch = ServerWatch(service_manager, note)

    def answers_correctly(self) -> bool:
        """True if every entry responds correctly to one request now."""
        return self.probe.right.is_met(self.probe.send())

    def ignore_down_servers(self) -> None:
        """Do not wait for the servers that load balancers already report as down."""
        self._server_watch.ignore_down_servers(self._stack.instances, self._map_transports())

    def _map_transports(self) -> dict[str, Transport]:
        return {name: self._hosts[name].transport for name in self._stack.hosts}

    def await_answer(self, limit_seconds: float, settings: Settings) -> None:
        """Wait until the stack responds correctly and load balancers use all servers. Raises
        StackNotReady.
        """
        start_time = time.monotonic()
        with wait_notices.wait("the stack", "a correct response", limit_seconds):
            problem = self._await_right_answer(limit_seconds)
        if problem is None:
            problem = self._await_servers(limit_seconds, settings)
        if problem is None:
            self.boot_times.record_stack(time.monotonic() - start_time)
            return
        failure_results = self._hosts.run_on_hosts(
            self._stack.hosts, lambda host: host.find_failures()
        )
        failure_lines = [
            line for failure_lines in failure_results.results.values() for line in failure_lines
        ]
        message = "\n".join([f"the stack does not respond correctly: {problem}", *failure_lines])
        raise StackNotReady(message, hint=READY_HINT)

    def _await_right_answer(self, limit_seconds: float) -> str | None:
        """Wait for a correct response. Return a message with the wrong response, or ``None``."""
        return readiness.wait_until_ready(
            self.probe.send, self.probe.right, limit_seconds, self.probe.min_interval
        )

    def _await_servers(self, limit_seconds: float, settings: Settings) -> str | None:
        """Wait until no server is down. Return a message with the servers that are still down, or
        ``None``.
        """
        active_instances = self._stack.active_instances(settings)
        transports = self._map_transports()
        if not (down := self._server_watch.find_down_servers(active_instances, transports)):
            return None
        start_time, server_names = time.monotonic(), describe_down_servers(down)
        self._note(f"waiting for servers that load balancers report as down: {server_names}")
        with wait_notices.wait("the load balancer", "all servers", limit_seconds):
            while down := self._server_watch.find_down_servers(active_instances, transports):
                if time.monotonic() - start_time > limit_seconds:
                    still_down_names = describe_down_servers(down)
                    return f"servers are still down after {limit_seconds:.0f} s: {still_down_names}"
                time.sleep(POLL_SECONDS)
        self._note(
            f"all servers are up again after {time.monotonic() - start_time:.0f} s: {server_names}"
        )
        return None

    def await_recovery(self, settings: Settings, *, is_answer_doubtful: bool) -> None:
        """Wait until load balancers use all servers, and, if ``is_answer_doubtful``, until the stack
        responds correctly.

        The deployed ``settings`` worked before, so servers that are down only need time to recover
        from an overload. Raises ServersDown.
        """
        limit_seconds = self.boot_times.late_limit
        problem = self._await_servers(limit_seconds, settings)
        if problem is None and is_answer_doubtful:
            problem = self._await_right_answer(limit_seconds)
            problem = (
                problem and f"the stack does not respond correctly after an overload: {problem}"
            )
        if problem:
            raise ServersDown(problem, hint=READY_HINT)
