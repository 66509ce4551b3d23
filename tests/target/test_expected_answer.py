"""What a target says of right answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from autotune.target import requests_file
from autotune.target.expected_answer import ANY_2XX, Expect
from autotune.target.read_target import read_target
from autotune.target.write_target import dump_yaml

TARGET = """name: shop
slo: {{p99: 50ms}}
hosts: {{web1: {{address: 198.18.0.2}}}}
tiers: {{web: {{hosts: web1, service: nginx}}}}
load: {{path: /, expect: {expect}}}
"""
ANSWER = (200, {"x-cache": "HIT from edge"}, "<p>Offers</p>", 13)


def target_of(tmp_path: Path, expect: str) -> Path:
    (path := tmp_path / "shop.yaml").write_text(TARGET.format(expect=expect))
    return path


@pytest.mark.parametrize(
    "expect",
    [
        "{status: 200}",
        "{status: [200, 404], body: Offers, not_body: [Fatal, Error], min_bytes: 10KB}",
        "{header: {X-Cache: HIT, Server: nginx}, body: [a, 'b: c']}",
    ],
)
def test_it_is_written_back_as_it_was_read(tmp_path: Path, expect: str) -> None:
    target = read_target(target_of(tmp_path, expect)).target
    (copy := tmp_path / "copy.yaml").write_text(dump_yaml(target))
    assert read_target(copy).target == target


MISTAKES = [
    ("{staus: 200}", "5:26: unknown key 'staus'"),
    ("{status: 503}", "5:26: status: must be at most 499, not 503"),
    ("{status: '200'}", "5:26: status: '200' is not a whole number"),
    ("{min_bytes: 1000}", "5:26: min_bytes: 1000 has no unit"),
    ("{header: {'X Cache': HIT}}", "5:35: 'X Cache' is not the name of a header"),
    ("{body: [a, 3]}", "5:36: body: 3 is not text"),
    ("{}", "5:17: expect: needs `status`"),
    ("Offers", "5:17: expect: must be a mapping, not 'Offers'"),
]


@pytest.mark.parametrize(("expect", "message"), MISTAKES)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, expect: str, message: str) -> None:
    path = target_of(tmp_path, expect)
    with pytest.raises(TargetError) as caught:
        read_target(path)
    assert caught.value.message.startswith(f"{path}:{message}")


UNMET = [
    ({"status": 200}, None),
    ({"status": [201, 202]}, "status 200 instead of 201 or 202"),
    ({"header": {"X-Cache": "hit"}}, None),
    ({"header": {"Age": "1"}}, "header Age lacks '1'"),
    ({"body": ["Offers", "</p>"]}, None),
    ({"body": "offers"}, "body lacks 'offers'"),
    ({"not_body": "Offers"}, "body contains 'Offers'"),
    ({"min_bytes": "13B"}, None),
    ({"min_bytes": "14B"}, "13 bytes, fewer than 14B"),
]


@pytest.mark.parametrize(("said", "lacking"), UNMET)
def test_what_an_answer_lacks(said: dict[str, object], lacking: str | None) -> None:
    assert Expect.model_validate(said).describe_mismatch(*ANSWER) == lacking


def test_headers_that_are_not_known_are_not_missed() -> None:
    assert Expect(header={"Age": "1"}).describe_mismatch(200, None, "", 0) is None
    assert Expect(body=("a",)).expected_statuses == ANY_2XX


def test_a_request_has_its_own(tmp_path: Path) -> None:
    (file := tmp_path / "r.yaml").write_text(
        "requests:\n- {path: /, expect: {body: Shop}}\n"
        "- session: [{path: /a, expect: {status: 404}}, {path: /b}]\n"
    )
    first, second = requests_file.read_visits(file)
    assert first.session_steps[0].expect == Expect(body=("Shop",))
    assert [step.expect and step.expect.status for step in second.session_steps] == [(404,), None]
    file.write_text("requests:\n- {path: /, method: HEAD, expect: {body: Shop}}\n")
    with pytest.raises(TargetError, match="HEAD"):
        requests_file.read_visits(file)
