"""Run the same work on many hosts in parallel."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from autotune.errors import AutotuneError, join_errors

T = TypeVar("T")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_SECONDS = 0.2  # time between checks for a pending signal


class NamedHost(Protocol):
    @property
    def name(self) -> str: ...


H = TypeVar("H", bound=NamedHost)


@dataclass(frozen=True)
class HostResults(Generic[T]):
    """Results of work on several hosts, by host name, in the order of the hosts.

    Each host is either in ``results`` or in ``errors``.
    """

    results: dict[str, T] = field(default_factory=dict)
    errors: dict[str, AutotuneError] = field(default_factory=dict)

    def unwrap(self) -> dict[str, T]:
        """Return the results, or raise ``AutotuneError`` with the message of every failed host.

        If all errors have the same class, the raised error has this class.
        """
        if not self.errors:
            return self.results
        raise join_errors(self.errors.values())


def run_on_all(
    hosts: Iterable[H], work: Callable[[H], T], max_parallel: int = 16
) -> HostResults[T]:
    """Call ``work`` for every host, on at most ``max_parallel`` hosts concurrently.

    Each ``AutotuneError`` is collected. Other exceptions are bugs, and are raised after all work has
    finished. After an interrupt, no further work starts, and the interrupt is raised when all running
    work has finished. Otherwise, running work could change a host that the caller has already restored.
    """
    host_results: HostResults[T] = HostResults()
    with _defer_signals() as pending_signals, ThreadPoolExecutor(max_workers=max_parallel) as pool:
        futures = {pool.submit(work, host): host for host in hosts}
        while wait(futures, timeout=_POLL_SECONDS).not_done and not pending_signals:
            pass
        if pending_signals:
            pool.shutdown(cancel_futures=True)
    for future, host in futures.items():
        try:
            host_results.results[host.name] = future.result()
        except AutotuneError as error:
            host_results.errors[host.name] = error
    return host_results


@contextmanager
def _defer_signals() -> Iterator[list[int]]:
    """Defer termination signals until the ``with`` block ends, and then raise the first deferred
    signal.

    In other threads than the main thread, no signals are deferred.
    """
    pending_signals: list[int] = []
    handler_by_signal = {}
    if threading.current_thread() is threading.main_thread():
        handler_by_signal = {
            signal_number: signal.getsignal(signal_number) for signal_number in STOP_SIGNALS
        }
        handler_by_signal = {
            signal_number: old_handler
            for signal_number, old_handler in handler_by_signal.items()
            if callable(old_handler)
        }
    for signal_number in handler_by_signal:
        signal.signal(signal_number, lambda signal_number, _: pending_signals.append(signal_number))
    try:
        yield pending_signals
    finally:
        for signal_number, old_handler in handler_by_signal.items():
            signal.signal(signal_number, old_handler)
    if pending_signals:
        signal.raise_signal(pending_signals[0])
