"""What hosts must be able to do before a study begins."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.environments.host_requirements import require_ready_servers
from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, ConfigFile, Role
from tests.deploy.doubles import Here

OWN = AdoptedConfig((ConfigFile("/etc/own.conf", "own.j2"),))
NEW = AdoptedConfig((*OWN.files, ConfigFile("/etc/new.conf", "new.j2", optional=True)))
UNIT = "nginx.service"


def host_files(transport: Here, adopted: Any = None, *, is_resumed: bool = False) -> Any:
    """Return the files of a stack on one host, whose rendered files are those of ``adopted``."""
    transport.name = "web1"
    target = SimpleNamespace(tiers={"web": SimpleNamespace(allow_data_loss=False)})
    layout = SimpleNamespace(isolated=False, can_reload=lambda service: service.reload_signal)
    return SimpleNamespace(
        file=SimpleNamespace(target=target, adopted={} if is_resumed else None),
        runtime=SimpleNamespace(layout=layout),
        transports={"web1": transport},
        render=lambda *_: {
            file.path: b"" if file.optional else b"as on the host\n"
            for file in (adopted.files if adopted else ())
        },
    )


def server(adopted: Any, role: Role = Role.WEB, argv: Any = ("true",), **attributes: Any) -> Any:
    service = SimpleNamespace(
        title="nginx",
        reload_signal="HUP",
        reload_keeps_processes=False,
        get_unit=lambda _: UNIT,
        build_unpersisted_check=lambda *_, **__: None,
        build_validation=lambda _, files: argv or ("false", *files.values()),
    )
    vars(service).update(attributes)
    placement = SimpleNamespace(host="web1", tier="web", role=role, adopted=adopted)
    return SimpleNamespace(service=service, placement=placement)


@pytest.mark.parametrize(
    ("adopted", "role", "argv", "is_refused"),
    [
        (OWN, Role.WEB, ("true",), False),
        (OWN, Role.WEB, ("sh", "-c", "echo unknown directive; exit 1"), True),
        (OWN, Role.APP, ("false",), False),
        (OWN, Role.WEB, (), False),
        (NEW, Role.WEB, ("false",), False),
        (None, Role.WEB, ("false",), False),
    ],
    ids=["accepted", "refused", "application", "by its content", "new file", "replaced"],
)
def test_software_that_refuses_its_own_files_is_never_restarted(
    tmp_path: Path, adopted: AdoptedConfig | None, role: Role, argv: Any, is_refused: bool
) -> None:
    """The end of a study restarts each unit, so nothing would serve the site afterwards."""
    files = host_files(Here(tmp_path), adopted)
    expected_error = pytest.raises(
        AutotuneError,
        match=r"^nginx on web1 refuses its own files and would not start again: unknown directive$",
    )
    with expected_error if is_refused else nullcontext():
        require_ready_servers(files, {}, [server(adopted, role, argv, reload_signal=None)])


def test_all_hosts_that_are_not_ready_are_named_at_once(tmp_path: Path) -> None:
    files = host_files(Here(tmp_path), OWN)
    second_host = Here(tmp_path)
    second_host.name = "web2"
    files.transports["web2"] = second_host
    servers = [server(OWN, argv=("false",)), server(OWN, argv=("false",))]
    servers[1].placement.host = "web2"
    with pytest.raises(AutotuneError, match=r"nginx on web1 refuses [^\n]*\nnginx on web2 refuses"):
        require_ready_servers(files, {}, servers)


@pytest.mark.parametrize(
    ("edited", "reloaded", "attributes", "is_refused"),
    [
        (-300, -100, {}, False),
        (-100, -300, {}, True),
        (-100, -300, {"reload_signal": None}, False),
        (-100, -300, {"reload_keeps_processes": True}, False),
        (-100, None, {}, False),
    ],
    ids=["read", "unread", "restarted only", "reported by itself", "unknown time"],
)
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_baseline_that_a_server_has_not_read_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    edited: int,
    reloaded: int | None,
    attributes: dict[str, Any],
    is_refused: bool,
    is_resumed: bool,
) -> None:
    """The report would name values that come into effect with the first reload."""
    conf = tmp_path / "own.conf"
    conf.touch()
    os.utime(conf, (time.time() + edited,) * 2)
    stand_in(tmp_path, monkeypatch, reloaded, process=0)
    own = AdoptedConfig((ConfigFile(str(conf), "own.j2"),))
    files = host_files(Here(tmp_path), own, is_resumed=is_resumed)
    expected_error = pytest.raises(AutotuneError, match=rf"^{UNIT} on web1 was .* change of {conf}")
    with expected_error if is_refused and not is_resumed else nullcontext():
        require_ready_servers(files, {}, [server(own, **attributes)])


def test_workers_that_a_signal_replaced_have_read_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nginx -s reload` does not change the time that systemd records."""
    conf = tmp_path / "own.conf"
    conf.touch()
    os.utime(conf, (time.time() - 100,) * 2)
    own = AdoptedConfig((ConfigFile(str(conf), "own.j2"),))
    with subprocess.Popen(["sh", "-c", "sleep 100 & wait"], start_new_session=True) as master:
        listed = Path(f"/proc/{master.pid}/task/{master.pid}/children")
        while not listed.read_text():
            time.sleep(0.01)
        stand_in(tmp_path, monkeypatch, -300, process=master.pid)
        try:
            require_ready_servers(host_files(Here(tmp_path), own), {}, [server(own)])
        finally:
            os.killpg(master.pid, 9)


def stand_in(
    place: Path, monkeypatch: pytest.MonkeyPatch, reloaded: int | None, process: int
) -> None:
    """Let `systemctl` print when a unit was reloaded, in seconds from now, and its main process."""
    stamp = (
        "n/a"
        if reloaded is None
        else time.strftime("%a %Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time() + reloaded))
    )
    systemctl = place / "bin" / "systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(
        f"#!/bin/sh\ncase $* in *MainPID*) echo {process} ;; *) echo '{stamp}' ;; esac\n"
    )
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{systemctl.parent}:{os.environ['PATH']}")


def test_workers_that_only_finish_old_connections_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "own.conf"
    own = AdoptedConfig((ConfigFile(str(conf), "own.j2"),))
    draining = "exec -a 'nginx: worker process is shutting down' sleep 100"
    # The file is changed after the old worker was started, and before the new one.
    script = f'(exec {draining[5:]}) & sleep 4; touch "$0"; sleep 100 & wait'
    with subprocess.Popen(["bash", "-c", script, str(conf)], start_new_session=True) as master:
        children = Path(f"/proc/{master.pid}/task/{master.pid}/children")
        try:
            while not conf.exists() or len(children.read_text().split()) < 2:
                time.sleep(0.01)
            stand_in(tmp_path, monkeypatch, -300, process=master.pid)
            require_ready_servers(host_files(Here(tmp_path), own), {}, [server(own)])
        finally:
            os.killpg(master.pid, 9)
