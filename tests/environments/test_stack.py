"""The environment of a stack of real servers."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy.host_state import ObservedHost
from autotune.environments.stack import StackEnvironment
from autotune.errors import AutotuneError
from autotune.space.facts import HostFacts
from autotune.transports.parallel_hosts import run_on_all

NAME = "net.core.somaxconn"


@pytest.mark.parametrize(
    ("present", "is_resumed", "is_refused"),
    [("65535", False, False), ("4096", False, True), ("4096", True, False)],
    ids=["as read", "of a restored host", "recorded before"],
)
def test_a_new_study_is_refused_if_kernel_values_changed_after_they_were_read(
    present: str, is_resumed: bool, is_refused: bool
) -> None:
    """As if they were read while a killed study had left its value on the host."""

    class Hosts:
        def run_on_hosts(self, names: Any, work: Any) -> Any:
            observed = ObservedHost(sysctls={NAME: present})
            return run_on_all(
                [SimpleNamespace(name=name, observe=lambda _: observed) for name in names], work
            )

    nothing: Any = None
    tiers = {"web": SimpleNamespace(hosts=("web1",)), "db": SimpleNamespace(hosts=("db1",))}
    file: Any = SimpleNamespace(target=SimpleNamespace(tiers=tiers))
    space: Any = SimpleNamespace(baseline={f"web.sysctl.{NAME}": 65535, "web.nginx.use": "epoll"})
    facts = {"web1": HostFacts(cpus=2, memory=2**30, kernel_values={NAME: "65535", "a.b": "1"})}
    environment = StackEnvironment(
        file, space, facts, nothing, {}, (), nothing, {}, {}, is_resumed=is_resumed
    )
    fleet: Any = SimpleNamespace(hosts=Hosts())
    expected_error = pytest.raises(
        AutotuneError, match=f"^web1: {NAME}: changed after autotune had"
    )
    with expected_error if is_refused else nullcontext():
        environment._refuse_changed_kernel_values(fleet)
