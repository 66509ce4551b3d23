"""The same work on many hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from autotune.errors import AutotuneError, joined

T = TypeVar("T")


class Named(Protocol):
    @property
    def name(self) -> str: ...


H = TypeVar("H", bound=Named)


@dataclass(frozen=True)
class HostResults(Generic[T]):
    """What came of work on several hosts, by the name of the host, in the order they were given.

    Each host is either in ``results`` or in ``errors``.
    """

    results: dict[str, T] = field(default_factory=dict)
    errors: dict[str, AutotuneError] = field(default_factory=dict)

    def unwrap(self) -> dict[str, T]:
        """The results; raises ``AutotuneError`` if any host has none, with what each said.

        Where all hosts failed in the same way it is of that kind.
        """
        if not self.errors:
            return self.results
        raise joined(self.errors.values())


def run_on_all(hosts: Iterable[H], work: Callable[[H], T], at_most: int = 16) -> HostResults[T]:
    """Do ``work`` on every host, ``at_most`` of them at a time, to its end on each.

    ``AutotuneError``s are gathered; any other exception is a bug and raised, once all are done.
    """
    known = list(hosts)
    gathered: HostResults[T] = HostResults()
    if not known:
        return gathered
    with ThreadPoolExecutor(max_workers=min(at_most, len(known))) as pool:
        futures = [pool.submit(work, host) for host in known]
    for host, future in zip(known, futures, strict=True):
        try:
            gathered.results[host.name] = future.result()
        except AutotuneError as error:
            gathered.errors[host.name] = error
    return gathered
