"""Fixtures and hooks for all tests."""

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
from tests.marks import NEEDS_PACKAGES, excludes_unmarked, names_mark, require_named_marks
from tests.report.browser import Browser, started
from tests.waiting_httperf import build_waiting_httperf

# Programs in addition to those of services and generators: for ceilings, connections to hosts, and
# labs.
INSTALLED = {"wrk", "memcaslap", "mutilate", "ss", "ip", "ssh", "ssh-keygen", "sshd", "sudo", "chromium",
             "systemd-nspawn", "curl", "openssl"}  # fmt: skip
LEFT = pytest.StashKey[list[str]]()
# Examples do not depend on the machine or its speed, so failures are reproducible.
settings.register_profile(
    "same", derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)  # fmt: skip
settings.load_profile("same")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported
# Tests simulate power cuts (tests/power_cut.py), so they need not wait for the disk. As fsync() does,
# fstat() refuses descriptors that are closed.
os.fsync = os.fstat  # type: ignore[assignment]

# Typer builds the commands from their signatures only once per worker, not for each call.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.testing._get_command = typer.main.get_command  # type: ignore[attr-defined]

# If a shell runs the tests in the background, its children ignore Ctrl-C, and so would the programs
# under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import modules without marked tests if only marked tests run: that takes each worker
    seconds.
    """
    is_module = collection_path.match("test_*.py")
    is_excluded = is_module and excludes_unmarked(config.option.markexpr)
    return True if is_excluded and not names_mark(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that boot hosts only if this machine cannot create labs.

    The slowest tests come first, so that all workers finish at about the same time.
    """
    require_named_marks(items)
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
    """Exclude tests and modules from garbage collection, because they exist until the end."""
    gc.collect()
    gc.freeze()


def _most_seconds(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0]) if marker and marker.args else 0.0


class Grouped(LoadScopeScheduling):
    """A scheduler that assigns tests with shared hosts or studies of their module to one worker, in
    order, because each worker would create these again. All other tests go to any worker.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _shares(self.config.rootpath / file) else nodeid


@functools.cache
def _shares(module: Path) -> bool:
    """True if a module has fixtures for all of its tests, or uses the study of tests/export."""
    text = module.read_text(encoding="utf-8")
    return 'scope="module"' in text or "modelled: Study" in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Grouped | None:
    return Grouped(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(autouse=True)
def _patience(request: pytest.FixtureRequest) -> None:
    """Extend time limits, so that real servers start and respond on a busy machine."""
    if any(request.node.get_closest_marker(mark) for mark in ("lab", "stack")):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.setattr("autotune.deploy.boot_times.MIN_READY_SECONDS", 60.0)
        monkeypatch.setattr("autotune.deploy.readiness.MIN_READY_SECONDS", 60.0)
        monkeypatch.setattr("autotune.monitor.host_watch.LAST_SAMPLE_SECONDS", 60.0)


@pytest.fixture(scope="session")
def waiting_httperf(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """Return a directory with an httperf that leaves the CPU to others while it waits."""
    return build_waiting_httperf(tmp_path_factory.mktemp("httperf"))


@pytest.fixture(autouse=True)
def _waits(request: pytest.FixtureRequest) -> None:
    """Use this httperf, except in tests that measure."""
    marks = {mark.name for mark in request.node.iter_markers()}
    if marks & {"lab", "stack"} and "quiet" not in marks:
        directory = request.getfixturevalue("waiting_httperf")
        if directory is not None:
            monkeypatch = request.getfixturevalue("monkeypatch")
            monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)


@pytest.fixture(autouse=True)
def _closed_databases() -> Iterator[None]:
    """Fail a test that leaves an SQLite database open, instead of a later test in which garbage is
    collected.
    """
    with databases.expect_closed():
        yield


@pytest.fixture(autouse=True, scope="session")
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Store the key and the run directories of tests in their temporary directory, not in the
    account's home.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def without_packages(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a ``PATH`` with all programs of this machine except those from packages that set-up
    installs.
    """
    directory = tmp_path_factory.mktemp("programs")
    needing = (*SHIPPED.services, *LOAD_GENERATORS.values())
    programs = {name for user in needing for names in user.programs.values() for name in names}
    packaged = INSTALLED | programs - {"true"}  # a placeholder for software with an unknown path
    found: dict[str, Path] = {}
    for place in filter(Path.is_dir, map(Path, os.environ["PATH"].split(os.pathsep))):
        found = {program.name: program for program in place.iterdir()} | found
    for name, program in found.items():
        if name not in packaged and not name.startswith("php"):
            (directory / name).symlink_to(program)
    return str(directory)


@pytest.fixture(autouse=True)
def _needs_no_package(request: pytest.FixtureRequest) -> None:
    """Hide the programs that set-up installs, unless a mark shows that the test needs them."""
    if not any(request.node.get_closest_marker(mark) for mark in NEEDS_PACKAGES):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.setenv("PATH", request.getfixturevalue("without_packages"))


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedLab]:
    """Yield four hosts for all tests of this worker. They are reset for each test."""
    directory = tmp_path_factory.mktemp("shared") / "lab"
    try:
        yield SharedLab.made(directory)
    finally:
        remove_lab(directory)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Yield one Chromium for all tests of this worker. Each page has a separate profile."""
    with started(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


def pytest_report_header() -> str:
    return f"moments of soak tests: AUTOTUNE_SEED={soak.SEED}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remove everything that killed test runs have left."""
    if _leads(session):
        # SIGTERM acts as Ctrl-C, so that tests and their fixtures clean up.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        for base in leftovers.abandoned(_base(session)):
            leftovers.remove(base)


@pytest.hookimpl(trylast=True)  # after xdist has stopped its workers
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove everything that the tests have left, and fail the run if there was anything."""
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
            terminalreporter.line(f"LEFT {line}")


def _leads(session: pytest.Session) -> bool:
    """True if this process is not a worker of xdist and runs as root, which labs require."""
    return os.geteuid() == 0 and not hasattr(session.config, "workerinput")


def _base(session: pytest.Session) -> Path:
    factory: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Record the start of each attempt at a test."""
    stolen.begins(item)
