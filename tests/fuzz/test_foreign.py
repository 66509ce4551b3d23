"""Studies and exports from strangers: read or refused, and nothing else, whatever is in them.

``AUTOTUNE_SEED=7 make test-soak`` makes other ones; ``AUTOTUNE_STUDIES`` says how many.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import soak
from tests.fuzz.foreign import Result, campaign

STUDIES = int(os.environ.get("AUTOTUNE_STUDIES", "320"))


def test_nothing_in_a_strangers_study_does_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert faults(campaign_in(tmp_path, 3, monkeypatch)) == {}


@pytest.mark.soak
@pytest.mark.long
@pytest.mark.timeout(7200)
def test_nothing_in_hundreds_of_strangers_studies_does_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = campaign_in(tmp_path, STUDIES, monkeypatch)
    print(f"{STUDIES} studies and exports, seed {soak.SEED}: {result}")
    assert faults(result) == {}


def campaign_in(tmp_path: Path, studies: int, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return campaign(tmp_path, studies, soak.SEED)


def faults(result: Result) -> dict[str, str]:
    for what, example in result.faults.items():
        print(f"{what}: {example}")
    return result.faults
