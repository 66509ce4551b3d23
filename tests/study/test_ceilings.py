"""How ceilings are measured, on load hosts that answer from a table."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import AutotuneError
from autotune.loads.base import LoadError
from autotune.services.base import Endpoint
from autotune.study import ceilings
from autotune.study.ceilings import CacheLoadTest, CeilingRequest
from autotune.target.slo import Slo
from autotune.transports.base import CommandResult


class Host:
    """Has ``programs``; what any other command prints is ``printed``."""

    name = "load1"

    def __init__(self, *programs: str, printed: str = "", status: int = 0) -> None:
        self.programs, self.printed, self.status = programs, printed, status
        self.ran: list[str] = []

    def run(self, argv: tuple[str, ...], **_: object) -> CommandResult:
        if argv[:2] == ("sh", "-c") and "timeout" not in argv:
            return CommandResult(argv, 0 if argv[-1] in self.programs else 1, "", "")
        self.ran.append(" ".join(argv))
        return CommandResult(argv, self.status, self.printed, "")

    def put(self, content: bytes, path: str) -> None:
        self.ran.append(f"put {path}")


def of_stack(host: Host, *clients: int) -> ceilings.StackCeilings:
    notes: list[str] = []
    context: Any = SimpleNamespace(
        session=SimpleNamespace(fleet=SimpleNamespace(deploy=lambda _: None)),
        space=SimpleNamespace(build_candidate=lambda _: SimpleNamespace(settings={})),
        progress=SimpleNamespace(note=notes.append),
    )
    request: Any = SimpleNamespace(url="http://127.0.0.1/", method="GET", headers=(), body=None)
    meter: Any = SimpleNamespace(
        begin_measurement=lambda **_: (), load_hosts=[host], request=request, timeout=2.0,
        max_rate=1000.0, answer_check=None,
    )  # fmt: skip
    measured = ceilings._measure_stack(context, meter, CeilingRequest({}, None, clients))
    assert len(notes) == len(clients)
    return measured


def test_a_stack_is_warmed_up_once_and_loaded_by_each_number_of_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load: Any = SimpleNamespace(
        name="loop",
        packages=("loops",),
        is_paced=True,
        build_input=lambda _: None,
        build_command=lambda _, clients: ("loop", f"{clients.concurrency}", f"{clients.seconds:g}"),
        parse_checked=lambda _, clients: ceilings.ClosedLoopCeiling(
            clients.concurrency, clients.seconds, 500
        ),
    )
    monkeypatch.setattr(ceilings, "CLOSED_LOOP_GENERATORS", {"loop": load})
    host = Host("loop")
    measured = of_stack(host, 1, 5)
    assert host.ran == ["loop 1 1", "loop 1 5", "loop 5 5"]
    assert measured.generator == "loop"
    assert [ceiling.rate for ceiling in measured.ceilings] == [100.0, 100.0]
    with pytest.raises(LoadError) as caught:
        of_stack(Host(), 1)
    assert caught.value.hint == "install loops on load1"


def alone(host: Any, *, unpaced: bool = True) -> Iterator[Any]:
    servers = (Endpoint("127.0.0.1", 11211),)
    return CacheLoadTest(
        servers, {"127.0.0.1": host}, Slo(), 100, 50_000.0, unpaced
    ).measure_ceilings()


def test_caches_are_measured_by_what_the_load_host_has() -> None:
    host: Any = Host("memcaslap", printed="nothing of use")
    measured = list(alone(host))
    assert [c.shape for c in measured] == ["100 B", "2 KB", "4 KB", "100 B, 100 at once"]
    assert all("printed no result" in str(c.failure) for c in measured)
    assert sum("memcaslap --servers" in command for command in host.ran) == 4
    missing: Any = Host(status=127)
    with pytest.raises(LoadError, match="memcaslap is not installed on load1"):
        list(alone(missing))


def test_caches_that_mutilate_cannot_fill_are_measured_by_memcaslap() -> None:
    host: Any = Host("mutilate", "memcaslap", printed="mutilate.cc(790): evdns", status=255)
    of_mutilate, *others = alone(host)
    assert "could not fill the caches" in str(of_mutilate.failure)
    assert [c.shape for c in others] == ["100 B", "2 KB", "4 KB", "100 B, 100 at once"]
    host = Host("mutilate", status=255)
    assert [c.shape for c in alone(host)] == ["100 B"]


@pytest.mark.parametrize("text", ["", "0", "1,x", "501", "5,-1"])
def test_a_number_of_clients_is_from_1_to_500(text: str) -> None:
    assert ceilings._parse_client_counts("1,500") == (1, 500)
    with pytest.raises(AutotuneError, match="expected numbers from 1 to 500"):
        ceilings._parse_client_counts(text)
