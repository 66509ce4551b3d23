from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import AutotuneError
from autotune.export.host_files import hosts_of
from autotune.study.records import Phase, Trial


@pytest.mark.parametrize("host", ["../../../elsewhere", "web1\ntouch /root/it"])
def test_a_host_that_the_target_does_not_have_becomes_no_path_and_no_script(host: str) -> None:
    deployed = {"event": "deployed", "trial": 0, "hosts": {"web1": {}, host: {}}}
    study: Any = SimpleNamespace(
        name="shop", records=[deployed], target=SimpleNamespace(hosts={"web1": None})
    )
    with pytest.raises(AutotuneError, match="which its target does not have"):
        hosts_of(study, Trial(0, Phase.BASELINE, {}))
