"""Settings with the values that took effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.services.base import Value
from autotune.study.study_state import Phase, Trial

NAME = "web.php_fpm.listen_backlog"


@pytest.mark.parametrize(
    ("asked", "effective", "shown"),
    [(23_170, 4096, 4096), (23_170, 4096.0, 4096), (0.5, 0.25, 0.25), ("on", "off", "off")],
)
def test_a_value_that_did_not_take_effect_is_not_shown(
    asked: Value, effective: Value, shown: Value
) -> None:
    trial = Trial(1, Phase.SEARCH, {NAME: asked, "other": 1}, effective={NAME: effective, "other": 2},
                  differences=(f"{NAME}: requested {asked}, effective {effective}",))  # fmt: skip
    assert trial.effective_settings == {NAME: shown, "other": 1}
    assert type(trial.effective_settings[NAME]) is type(shown)
    assert replace(trial, differences=()).effective_settings == trial.settings
