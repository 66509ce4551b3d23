"""Every runtime has a file, and is what targets take it for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from autotune import runtimes
from autotune.runtimes import load_runtime
from autotune.runtimes.systemd import SERVICE_MANAGER, parse_units
from autotune.target.runtimes import RUNTIME_NAMES, RUNTIMES


def test_each_file_is_a_runtime() -> None:
    assert runtimes.__file__ is not None
    files = {path.stem for path in Path(runtimes.__file__).parent.glob("*.py")}
    assert files - {"__init__"} == set(RUNTIME_NAMES)


@pytest.mark.parametrize("name", RUNTIME_NAMES)
def test_a_runtime_has_its_traits(name: str) -> None:
    runtime, traits = load_runtime(name), RUNTIMES[name]
    assert (runtime.installed, runtime.layout.isolated) == (traits.installed, traits.isolated)


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [
        ("1min 30s", 90.0),
        ("15min", 900.0),
        ("500ms", 0.5),
        ("1min 2.5s", 62.5),
        ("2h 5s", 3600.0),
        ("infinity", 3600.0),
        ("", 90.0),
        ("soon", 90.0),
    ],
)
def test_a_unit_has_the_time_to_stop_that_systemd_gives_it(printed: str, seconds: float) -> None:
    lines = ("LoadState=loaded", "ActiveState=active", "SubState=running", "UnitFileState=enabled",
             "MainPID=7", "NRestarts=0", f"TimeoutStopUSec={printed}")  # fmt: skip
    assert parse_units(("a.service",), "\n".join(lines))["a.service"].stop_seconds == seconds


def test_the_control_group_of_a_unit_is_what_systemd_prints() -> None:
    script = f"""{SERVICE_MANAGER.shell_functions}
systemctl() {{ [ "$*" = 'show --value -p ControlGroup -- web.service' ] &&
    echo /system.slice/web.service; }}
group web.service"""
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout == "/system.slice/web.service\n"
