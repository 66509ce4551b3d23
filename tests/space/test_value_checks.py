from __future__ import annotations

from pathlib import Path

import pytest

from autotune.space.value_checks import find_value_errors
from autotune.target.read_target import read_target
from tests.space.targets import FLEET


@pytest.mark.parametrize(
    ("rules", "messages"),
    [
        ("lb.nginx.worker_connections: {fixed: many}",
         ["3:44: lb.nginx.worker_connections: 'many' is not a number"]),
        ("lb.nginx.use: {choices: [epoll, pol]}", ["3:29: lb.nginx.use cannot be 'pol'"]),
        ("lb.nginx.use: {range: [1, 2]}", ["3:29: lb.nginx.use takes choices, not a range"]),
        ("lb.nginx.backlog: {range: [1KB, 2KB]}",
         ["3:33: lb.nginx.backlog: '1KB': this parameter has no unit: write only the number"]),
        # The choices of kernel settings depend on the host.
        ("lb.sysctl.net.ipv4.tcp_congestion_control: {fixed: bbr}", []),
    ],
)  # fmt: skip
def test_values_are_checked_without_hosts(tmp_path: Path, rules: str, messages: list[str]) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET.replace("name: fleet", f"name: fleet\nparameters: {{{rules}}}", 1))
    found = [
        error.message.removeprefix(f"{path}:") for error in find_value_errors(read_target(path))
    ]
    assert found == messages
