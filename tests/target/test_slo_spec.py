from __future__ import annotations

import pytest
from pydantic import ValidationError

from autotune.target.slo import Slo
from autotune.target.slo_spec import SloSpec


@pytest.mark.parametrize(
    ("written", "slo"),
    [
        ({"p99": "50ms", "errors": "0.1%"}, Slo(0.99, 0.05, 0.001)),
        ({"p99": "50ms"}, Slo(0.99, 0.05, 0.001)),
        ({"p50": "1s", "errors": "0%"}, Slo(0.5, 1.0, 0.0)),
        ({"p99.9": "3 s"}, Slo(0.999, 3.0, 0.001)),
        # Failed requests are late ones: no more may fail by default than may be late.
        ({"p99.99": "3s"}, Slo(0.9999, 3.0, 0.0001)),
    ],
)
def test_an_objective_reads(written: dict[str, str], slo: Slo) -> None:
    assert SloSpec.model_validate(written).objective == slo


@pytest.mark.parametrize("key", ["p50", "p99", "p99.9", "p99.95", "p07"])
def test_writes_the_percentile_as_a_key(key: str) -> None:
    if key == "p07":
        with pytest.raises(ValidationError):
            SloSpec.model_validate({key: "50ms"})
        return
    written = SloSpec.model_validate({key: "50ms"}).model_dump(mode="json")
    assert written[key] == "50ms"
    assert set(written) == {key, "errors"}


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ({"p99": "50ms", "p95": "20ms"}, "p95"),
        ({"p99": "50ms", "quantile": 0.5}, "quantile"),
        ({"p99": "50ms", "limit": "9s"}, "limit"),
        ({"p99": "50"}, "p99"),
        ({"p49": "50ms"}, "p49"),
        ({"p100": "50ms"}, "p100"),
        ({"p99": "50ms", "errors": 0.1}, "errors"),
    ],
)
def test_a_finding_is_placed_at_the_key_as_written(written: dict[str, object], key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SloSpec.model_validate(written)
    assert caught.value.errors()[0]["loc"] == (key,)
