"""Notices about slow commands on hosts. Each notice contains the command and its time limit.

Transports report every command. One thread watches all commands, and sleeps while no command is
late.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf

from autotune.transports.base import Argv

FIRST_NOTICE_SECONDS = 8.0  # time until the first notice about a command
REPEAT_SECONDS = (22.0, 60.0)  # time until the next notice; the last interval repeats
Listener = Callable[[str], object]


@dataclass
class Wait:
    """A command for which autotune waits. ``next_notice`` is the time of the next notice about it, on
    the monotonic clock.
    """

    purpose: str
    host: str
    start_time: float
    max_seconds: float
    next_notice: float
    line_count: int = 0

    def format_line(self, now: float) -> str:
        """Return the text of a notice: the command, and how long autotune has waited for it."""
        return (
            f"waiting for {self.host}: {self.purpose} ({now - self.start_time:.0f} s so far, "
            f"{self.max_seconds:.0f} s at most)"
        )


class Watcher:
    """A watcher that sends notices about late commands to the listener that was added last. Other
    listeners get no notices, so that no line appears twice.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, unnoticed: float = FIRST_NOTICE_SECONDS
    ) -> None:
        self._clock, self._unnoticed = clock, unnoticed
        self._changed = threading.Condition()
        self._waits: dict[int, Wait] = {}
        self._listeners: list[Listener] = []
        self._next = inf  # time of the thread's next check
        self._thread: threading.Thread | None = None
        self._local = threading.local()

    @contextmanager
    def listen(self, listener: Listener) -> Iterator[None]:
        """Send notices to ``listener`` within the ``with`` block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @contextmanager
    def describe(self, purpose: str = "", *, usual: float = 0.0) -> Iterator[None]:
        """Describe this thread's commands within the ``with`` block as ``purpose``. Each command
        usually takes ``usual`` seconds.
        """
        previous_description = self._describe_current()
        self._local.described = purpose or previous_description[0], usual
        try:
            yield
        finally:
            self._local.described = previous_description

    @contextmanager
    def watch_command(self, host: str, argv: Argv, max_seconds: float) -> Iterator[None]:
        """Watch a command that runs within the ``with`` block, for at most ``max_seconds`` seconds."""
        purpose, usual_seconds = self._describe_current()
        with self.watch(
            host, purpose or name_command(argv), max_seconds, usual_seconds=usual_seconds
        ):
            yield

    @contextmanager
    def watch(
        self, host: str, purpose: str, max_seconds: float, *, usual_seconds: float = 0.0
    ) -> Iterator[None]:
        """Watch the ``with`` block, which waits for ``purpose`` for at most ``max_seconds`` seconds."""
        current_time = self._clock()
        wait = Wait(
            purpose, host, current_time, max_seconds, current_time + usual_seconds + self._unnoticed
        )
        self._add_wait(wait)
        try:
            yield
        finally:
            with self._changed:
                del self._waits[id(wait)]
            if wait.line_count:
                self._notify(f"{host}: {purpose} took {self._clock() - wait.start_time:.0f} s")

    def notify_due(self) -> None:
        """Send a notice about every command that is late now."""
        current_time = self._clock()
        with self._changed:
            due_waits = [wait for wait in self._waits.values() if wait.next_notice <= current_time]
            for wait in due_waits:
                wait.next_notice = (
                    current_time + REPEAT_SECONDS[min(wait.line_count, len(REPEAT_SECONDS) - 1)]
                )
                wait.line_count += 1
        for wait in due_waits:
            self._notify(wait.format_line(current_time))

    def _describe_current(self) -> tuple[str, float]:
        description: tuple[str, float] = getattr(self._local, "described", ("", 0.0))
        return description

    def _add_wait(self, wait: Wait) -> None:
        with self._changed:
            self._waits[id(wait)] = wait
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_watch, name="waiting", daemon=True)
                self._thread.start()
            elif wait.next_notice < self._next:
                self._changed.notify()

    def _run_watch(self) -> None:
        while True:
            with self._changed:
                self._next = min((wait.next_notice for wait in self._waits.values()), default=inf)
                remaining_seconds = self._next - self._clock()
                if remaining_seconds > 0:
                    self._changed.wait(None if self._next == inf else remaining_seconds)
                    continue
            self.notify_due()

    def _notify(self, line: str) -> None:
        listeners = self._listeners[-1:]
        for listener in listeners:
            # If a listener fails, it must still get the next line.
            with suppress(Exception):
                listener(line)


def name_command(argv: Argv) -> str:
    """Return the name of the program that a command runs, ignoring wrappers such as ``timeout``."""
    words = [word.rpartition("/")[2] for word in argv]
    while words:
        if words[0] == "env":
            words = words[1:]
        elif words[0] in ("timeout", "sudo", "nice", "exec"):
            words = words[1:]
            while words and (words[0].startswith("-") or words[0][:1].isdigit()):
                words = words[1:]
        elif words[0] == "sh" and "-c" in words[1:2] and len(words) > 4:
            words = words[4:]
        elif "=" in words[0]:
            words = words[1:]
        else:
            return words[0]
    return "a command"


WATCHER = Watcher()
about, command, wait, listening = (
    WATCHER.describe,
    WATCHER.watch_command,
    WATCHER.watch,
    WATCHER.listen,
)
