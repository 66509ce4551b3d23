"""What hosts must be able to do before a study begins."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.environments.host_requirements import require_safe_restarts
from autotune.errors import AutotuneError
from autotune.services.base import AdoptedConfig, ConfigFile, Role
from tests.deploy.doubles import Here

OWN = AdoptedConfig((ConfigFile("/etc/own.conf", "own.j2"),))
NEW = AdoptedConfig((*OWN.files, ConfigFile("/etc/new.conf", "new.j2", optional=True)))


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
    rendered = {"/etc/own.conf": b"as on the host\n", "/etc/new.conf": b""}
    service = SimpleNamespace(
        title="nginx",
        build_unpersisted_check=lambda *_, **__: None,
        build_validation=lambda _, files: argv or ("false", *files.values()),
    )
    placement = SimpleNamespace(host="web1", tier="web", role=role, adopted=adopted)
    instance: Any = SimpleNamespace(service=service, placement=placement)
    target = SimpleNamespace(tiers={"web": SimpleNamespace(allow_data_loss=False)})
    stack_files: Any = SimpleNamespace(
        file=SimpleNamespace(target=target),
        runtime=SimpleNamespace(layout=SimpleNamespace(isolated=False)),
        transports={"web1": Here(tmp_path)},
        render=lambda *_: rendered,
    )
    expected_error = pytest.raises(
        AutotuneError, match="^web1: nginx refuses its own files.*: unknown directive$"
    )
    with expected_error if is_refused else nullcontext():
        require_safe_restarts(stack_files, {}, [instance])
