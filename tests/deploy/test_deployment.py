"""One step of a deployment at a time, on this machine."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.deploy_result import DeployFailed
from autotune.deploy.deployment import Deployment
from autotune.deploy.host_commands import CommandFailed
from autotune.deploy.host_state import FileState, HostPlan, HostState
from autotune.deploy.managed_hosts import ManagedHosts
from autotune.deploy.read_back import ConfirmedState
from autotune.deploy.readiness import RightAnswer
from autotune.deploy.runtime import ConfigurationCheck, RuntimeLayout
from autotune.deploy.stack import ServiceInstance
from autotune.deploy.stack_readiness import EntryProbe
from autotune.deploy.unit_start import UnitStart
from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, ConfigFile, Endpoint, Placement, Role, Service
from autotune.services.nginx.service import Nginx
from autotune.target.model import Data
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
from tests.deploy.doubles import Here
from tests.deploy.test_dataset import FileCache, FileStore, place

PAIRS = 1000


class Unfilled(FileCache):
    """A cache that only clients can fill."""

    name = "unfilled"

    def build_prefill_command(self, placement: Placement, pairs: Any) -> None:
        return None


def build_deployment(
    hosts: Any, service_manager: object = None, *, body: bytes | None = b"right"
) -> Deployment:
    """Return a deployment of nothing, whose stack responds correctly."""
    target: Any = SimpleNamespace(data=Data(pairs=PAIRS))
    stack: Any = SimpleNamespace(hosts=(), instances=())
    runtime: Any = SimpleNamespace(installed=True, service_manager=service_manager)
    nothing: Any = None
    probe = EntryProbe(lambda: (200, body or b""), RightAnswer(body))
    return Deployment(target, nothing, stack, runtime, hosts, "study", probe=probe, loads_data=True)


@pytest.mark.parametrize(
    ("method", "directory", "error_type"),
    [(("false",), "", DeployFailed), (("true",), "file/", CommandFailed)],
    ids=["refused by the software", "not written by the host"],
)
def test_a_configuration_is_at_fault_only_if_the_software_refuses_it(
    tmp_path: Path, method: tuple[str, ...], directory: str, error_type: type[AutotuneError]
) -> None:
    (tmp_path / "file").touch()
    path = str(tmp_path / directory / "conf")
    instance = place(FileCache(), tmp_path)
    check = ConfigurationCheck(instance, method, {path: b"new\n"}, (path,))
    desired: Any = SimpleNamespace(
        hosts={"here": HostState({path: FileState(b"new\n")})}, build_checks=lambda *_: [check]
    )
    transport = Here(tmp_path)
    transport.name = "here"
    hosts = ManagedHosts([transport], tmp_path / "study", print)
    hosts.lock()
    with pytest.raises(AutotuneError) as refused:
        build_deployment(hosts)._validate_hosts(desired, {"here": HostPlan(files_to_write=(path,))})
    hosts.unlock(restored=True)
    assert type(refused.value) is error_type
    assert not [path for path in tmp_path.rglob("*") if "autotune-new" in path.name]


@pytest.mark.parametrize(
    ("functions", "url"), [(None, ""), ("\nanswers() { true; }\n", "http://10.0.0.2/page")]
)
def test_pages_are_requested_as_the_service_manager_does(
    tmp_path: Path, functions: str | None, url: str
) -> None:
    """No server listens, so only the service manager's function finds the page."""
    manager = SimpleNamespace(shell_functions=functions) if functions else None
    hosts: Any = ManagedHosts([Here(tmp_path)], tmp_path / "study", print)
    starts = {"web.service": UnitStart(url="http://10.0.0.2/page")}
    desired: Any = SimpleNamespace(
        hosts={"here": HostState(starts=starts)}, instances=(), rendered_files={}
    )
    deployment = build_deployment(hosts, manager)
    deployment._inspect_original_stack(desired)
    assert deployment._starts["here"]["web.service"].url == url


@pytest.mark.parametrize(("limit", "interval"), [(0.001, 0.2), (5.0, 5.0)])
def test_hosts_request_pages_no_more_often_than_the_load_limit_allows(
    limit: float, interval: float
) -> None:
    site = Placement(tier="web", host="web1", role=Role.PROXY, directory="/run/x", installed=True,
                     listen=Endpoint("10.0.0.2", 80))  # fmt: skip
    deployment = build_deployment(None)
    runtime: Any = SimpleNamespace(installed=True, layout=RuntimeLayout())
    stack: Any = SimpleNamespace(called_tiers={})
    deployment.runtime, deployment.stack = runtime, stack
    page = Request(Endpoint("10.0.0.1", 80), "/page")
    readiness = deployment.readiness
    readiness.probe = replace(readiness.probe, page=page, min_interval=limit)
    start = deployment._describe_start(ServiceInstance(Nginx(), site))
    assert (start.url, start.interval) == ("http://10.0.0.2:80/page", interval)


@pytest.mark.parametrize(
    ("services", "body", "is_filled"),
    [
        ((FileStore, FileCache), b"right", True),
        ((FileStore,), b"right", False),
        ((FileCache,), b"right", False),
        ((FileStore, FileCache), None, False),  # the load does not request the data set
        ((FileStore, FileCache, Unfilled), b"right", False),
    ],
)
def test_caches_are_filled_with_the_pairs_of_a_store(
    tmp_path: Path, services: tuple[type[Service], ...], body: bytes | None, is_filled: bool
) -> None:
    instances = tuple(place(service(), tmp_path) for service in services)
    desired: Any = SimpleNamespace(instances=instances)
    hosts: Any = {"here": SimpleNamespace(transport=LocalTransport())}
    deployment = build_deployment(hosts, body=body)
    assert deployment._load_data(desired, {"here": HostPlan()}) is is_filled
    assert (tmp_path / "file_store" / "mark").exists() == (FileStore in services)


@pytest.mark.parametrize(
    ("content", "ostype", "change"),
    [
        (b"tuned\n", "Linux", ""),
        (b"by configuration management\n", "Linux", "here: {conf}"),
        (b"tuned\n", "another", "here: kernel.ostype"),
    ],
    ids=["nothing", "file", "kernel value"],
)
def test_a_host_that_others_change_during_a_trial_stops_the_study(
    tmp_path: Path, content: bytes, ostype: str, change: str
) -> None:
    conf = tmp_path / "conf"
    conf.write_bytes(content)
    transport = Here(tmp_path)
    transport.name = "here"
    hosts = ManagedHosts([transport], tmp_path / "study", print)
    fleet = build_deployment(hosts)
    fleet.stack = SimpleNamespace(hosts=("here",))  # type: ignore[assignment]
    state = HostState({str(conf): FileState(b"tuned\n")}, {}, {"kernel.ostype": "Linux"})
    desired: Any = SimpleNamespace(hosts={"here": state}, settings={})
    deployed: Any = None
    fleet._confirmed_state = ConfirmedState(
        desired, deployed, {"here": {}}, {"here": {"kernel.ostype": ostype}}
    )
    hosts.lock()
    try:
        if change:
            with pytest.raises(AutotuneError, match=change.format(conf=conf)) as changed:
                fleet.verify()
            assert not isinstance(changed.value, DeployFailed)
            assert "`autotune resume study` repeats the trial" in (changed.value.hint or "")
        else:
            fleet.verify()
    finally:
        hosts.unlock(restored=True)


def build_editing_deployment(tmp_path: Path, conf: Path) -> tuple[Deployment, Any, ManagedHosts]:
    """Return a deployment that edits a file of this machine, its desired state, and its hosts."""
    conf.write_bytes(b"read\n")
    digest = hashlib.sha256(conf.read_bytes()).hexdigest()
    new = ConfigFile(f"{conf}.d/new", "new.j2", text="", optional=True)
    own = AdoptedConfig((ConfigFile(str(conf), "conf.j2", digest=digest), new))
    instance = SimpleNamespace(placement=SimpleNamespace(host="here", adopted=own))
    desired: Any = SimpleNamespace(
        instances=[instance],
        layout=RuntimeLayout(),
        hosts={"here": HostState({str(conf): FileState(b"tuned\n")})},
        created_files=lambda _: (),
        build_checks=lambda *_: [],
    )
    transport = Here(tmp_path)
    transport.name = "here"
    hosts = ManagedHosts([transport], tmp_path / "study", print)
    fleet = build_deployment(hosts)
    fleet.stack = SimpleNamespace(hosts=("here",))  # type: ignore[assignment]
    fleet.runtime = SimpleNamespace(layout=RuntimeLayout())  # type: ignore[assignment]
    return fleet, desired, hosts


@pytest.mark.parametrize("content", [b"read\n", b"edited by hand\n", None])
def test_a_file_that_was_changed_after_its_template_was_made_is_not_overwritten(
    tmp_path: Path, content: bytes | None
) -> None:
    """As between two sessions of a study, or while `run` waits for its confirmation."""
    conf = tmp_path / "conf"
    fleet, desired, hosts = build_editing_deployment(tmp_path, conf)
    hosts.lock()
    if content is None:
        conf.unlink()
    else:
        conf.write_bytes(content)
    if content == b"read\n":
        fleet._back_up_hosts(desired)
        conf.write_bytes(b"tuned\n")
        fleet._back_up_hosts(desired)  # autotune itself has changed it
    else:
        with pytest.raises(AutotuneError, match=f"here: {conf}: changed after autotune had read"):
            fleet._back_up_hosts(desired)
        assert not hosts["here"].is_changed
    hosts.unlock(restored=True)


def test_a_file_that_was_created_after_the_host_was_read_is_not_overwritten(tmp_path: Path) -> None:
    """As by an export, which may add the drop-in of a unit."""
    conf = tmp_path / "conf"
    fleet, desired, hosts = build_editing_deployment(tmp_path, conf)
    hosts.lock()
    new = tmp_path / "conf.d" / "new"
    new.parent.mkdir()
    new.write_bytes(b"of an export\n")
    with pytest.raises(AutotuneError, match=f"here: {new}: changed after autotune had read"):
        fleet._back_up_hosts(desired)
    assert not hosts["here"].is_changed
    hosts.unlock(restored=True)


def test_a_path_that_cannot_be_replaced_is_refused_for_this_reason(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    fleet, desired, hosts = build_editing_deployment(tmp_path, conf)
    (tmp_path / "other name").hardlink_to(conf)
    hosts.lock()
    with pytest.raises(AutotuneError, match="conf is one of several hard links to a file"):
        fleet._back_up_hosts(desired)
    hosts.unlock(restored=True)
