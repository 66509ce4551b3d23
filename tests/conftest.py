"""What holds for every test."""

from __future__ import annotations

import functools
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from autotune.lab import prerequisites
from autotune.lab.lifecycle import remove_lab
from autotune.loads.registry import LOAD_GENERATORS
from autotune.services.registry import SHIPPED
from tests import databases, leftovers, soak, stolen
from tests.lab.shared import SharedLab
from tests.report.browser import Browser, started

NEEDS_PACKAGES = ("stack", "lab", "browser", "built", "containers", "long", "soak", "quiet")
# Beside those of services and generators: ceilings, what hosts are reached with, what labs are made of.
INSTALLED = {"wrk", "memcaslap", "mutilate", "ss", "ip", "ssh", "ssh-keygen", "sshd", "sudo", "chromium",
             "systemd-nspawn", "curl", "openssl"}  # fmt: skip
LEFT = pytest.StashKey[list[str]]()
# The same examples every time, however slow the machine: a failure here is a failure there.
settings.register_profile(
    "same", derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
settings.load_profile("same")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does, before it is read

# The commands are put together from their signatures once a worker, not once a call.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command  # type: ignore[attr-defined]

# Started in the background, a shell's children ignore Ctrl-C, and so would every program under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that boot hosts are skipped where none can be made, and nowhere else.

    Those that may take the longest come first: at the end no worker waits for another.
    """
    items.sort(key=lambda item: (_most_seconds(item), _shares(item.path)), reverse=True)
    marked = [item for item in items if item.get_closest_marker("lab")]
    if marked and (reasons := prerequisites.list_obstacles(prerequisites.list_missing_packages())):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="; ".join(reasons)))
    for item in items:
        if item.get_closest_marker("quiet"):
            stolen.watch(item)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The garbage collector leaves alone what lives to the end: thousands of tests and modules."""
    gc.collect()
    gc.freeze()


def _most_seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker and marker.args else 0.0


class Grouped(LoadScopeScheduling):
    """Tests that share what their module makes, hosts or whole studies, go to one worker, in order:
    each worker would make it again. Others go to any."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _shares(self.config.rootpath / file) else nodeid


@functools.cache
def _shares(module: Path) -> bool:
    return 'scope="module"' in module.read_text(encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Grouped | None:
    return Grouped(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest) -> None:
    """However busy this machine is, real servers come up and answer."""
    if any(request.node.get_closest_marker(mark) for mark in ("lab", "stack")):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.setattr("autotune.deploy.boot_times.MIN_READY_SECONDS", 60.0)
        monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def _closed_databases() -> Iterator[None]:
    """A test that leaves an SQLite database open fails itself, not the one that collects garbage."""
    with databases.expect_closed():
        yield


@pytest.fixture(autouse=True, scope="session")
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The key and the run directories of tests are kept with the tests, not in the account's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def without_packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ``PATH`` with all of this machine's programs but those that set-up installs packages for."""
    directory = tmp_path_factory.mktemp("programs")
    needing = (*SHIPPED.services, *LOAD_GENERATORS.values())
    programs = {name for user in needing for names in user.programs.values() for name in names}
    packaged = INSTALLED | programs - {"true"}  # which stands for software that may be anywhere
    found: dict[str, Path] = {}
    for place in filter(Path.is_dir, map(Path, os.environ["PATH"].split(os.pathsep))):
        found = {program.name: program for program in place.iterdir()} | found
    for name, program in found.items():
        if name not in packaged and not name.startswith("php"):
            (directory / name).symlink_to(program)
    return str(directory)


@pytest.fixture(autouse=True)
def _needs_no_package(request: pytest.FixtureRequest) -> None:
    """A test finds only what is there before set-up, unless a mark says that it needs more."""
    if not any(request.node.get_closest_marker(mark) for mark in NEEDS_PACKAGES):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.setenv("PATH", request.getfixturevalue("without_packages"))


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedLab]:
    """Four hosts for every test of this worker; each test has them renewed."""
    directory = tmp_path_factory.mktemp("shared") / "lab"
    try:
        yield SharedLab.made(directory)
    finally:
        remove_lab(directory)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for every test of this worker; each page is a profile of its own."""
    with started(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def pytest_report_header() -> str:
    return f"moments of soak tests: AUTOTUNE_SEED={soak.SEED}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """What a run that was killed has left is taken away by the next one."""
    if _leads(session):
        # Told to end, it ends as by Ctrl-C: tests and their fixtures come to their ends.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        for base in leftovers.abandoned(_base(session)):
            leftovers.remove(base)


@pytest.hookimpl(trylast=True)  # after xdist has ended its workers
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whatever became of the tests, nothing of theirs is left; they fail if there was anything."""
    if _leads(session) and (found := leftovers.staying(_base(session))):
        leftovers.remove(_base(session))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.stash[LEFT] = found


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if found := config.stash.get(LEFT, []):
        terminalreporter.section("left behind by tests, now removed", red=True, bold=True)
        for line in found:
            terminalreporter.line(line)


def _leads(session: pytest.Session) -> bool:
    """Not one of xdist's workers; and root, without which there are no labs."""
    return os.geteuid() == 0 and not hasattr(session.config, "workerinput")


def _base(session: pytest.Session) -> Path:
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every attempt at a test, the first and any other."""
    stolen.begins(item)
