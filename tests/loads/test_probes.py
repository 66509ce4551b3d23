from __future__ import annotations

import pytest

from autotune.loads import probes
from autotune.loads.answer_validation import LoadPage
from autotune.loads.base import LoadError
from autotune.loads.probes import ProbeAnswer
from autotune.services.base import Endpoint
from autotune.target.requests_file import SessionStep
from autotune.transports.base import CommandResult
from autotune.transports.local import LocalTransport
from autotune.transports.request import Request
from tests.loads.server import BODY, recording

FAST = {"per_second": 200.0, "timeout": 5.0, "expected_seconds": 0.05}


def probe(requests: list[Request], **how: float) -> list[ProbeAnswer | None]:
    command = probes.build_command(requests, **{**FAST, **how})
    done = LocalTransport().run(command.argv, input=command.input, timeout=command.stop_seconds)
    return probes.parse_answers(done, command.requests)


@pytest.mark.stack
def test_answers_come_in_the_order_of_the_requests() -> None:
    paths = ["/a[1]{b}?c=d", "/broken", "/", '/q"uote', "/%C3%BC#x"]
    with recording() as (endpoint, seen):
        answers = probe([Request(endpoint, path) for path in paths])
        gone = probe([Request(Endpoint("127.0.0.1", 1), "/")])
    assert [answer and answer.status for answer in answers] == [200, 500, 200, 200, 200]
    assert sorted(seen) == sorted(["/a[1]{b}?c=d", "/broken", "/", '/q"uote', "/%C3%BC"])
    assert all(answer and answer.text == BODY.decode() for answer in answers)
    assert answers[0] is not None
    assert answers[0].size == len(BODY)
    assert answers[0].headers["content-length"] == str(len(BODY))
    assert gone == [None]


@pytest.mark.stack
def test_an_answer_that_is_too_late_is_none() -> None:
    with recording() as (endpoint, _):
        answers = probe([Request(endpoint, "/slow"), Request(endpoint, "/")], timeout=0.2)
    assert answers[0] is None


@pytest.mark.stack
def test_answers_after_the_end_of_a_sample_are_none_and_earlier_ones_complete() -> None:
    """A response without its headers would count as wrong."""
    with recording() as (endpoint, _):
        answers = probe(
            [Request(endpoint, "/slow")] * 20,
            per_second=20.0,
            expected_seconds=0.01,
            overrun_seconds=0.1,
        )
    received = [answer for answer in answers if answer]
    assert 0 < len(received) < len(answers)
    assert all("content-length" in answer.headers for answer in received)


def test_a_response_whose_headers_were_cut_off_is_none() -> None:
    printed = (
        '/tmp/x\n\n<autotune 00000 200 0 2 0.01>{"content-type":["text/h'
        "\n<autotune 00001 200 0 2 0.01>{}\n<autotune end 00001>\n"
        "\n<autotune bodies /tmp/x>\n==> /tmp/x/body.00000 <==\nok"
        "\n==> /tmp/x/body.00001 <==\nok\n<autotune ends /tmp/x>\n\n<autotune errors /tmp/x>\n"
    )
    first, second = probes.parse_answers(
        CommandResult((), 0, printed, ""), [Request(Endpoint("h", 80), "/")] * 2
    )
    assert first is None
    assert second is not None


@pytest.mark.parametrize(("latency_seconds", "kept"), [(0.1, [*range(8)]), (1.0, [0, 1, 2, 3])])
def test_answers_without_load_are_none(latency_seconds: float, kept: list[int]) -> None:
    """Two curl processes send the requests of two seconds, and slow responses delay the next ones."""
    requests = [Request(Endpoint("h", 80), "/")] * 8
    command = probes.build_command(requests, per_second=4.0, timeout=5.0, expected_seconds=0.5)
    marks = "".join(
        f"\n<autotune {index:05} 200 0 2 {latency_seconds}>{{}}\n<autotune end {index:05}>\n"
        for index in range(8)
    )
    end = "<autotune bodies /tmp/x>\n\n<autotune ends /tmp/x>\n\n<autotune errors /tmp/x>\n"
    output = CommandResult((), 0, f"/tmp/x\n{marks}\n{end}", "")
    answers = probes.parse_answers_under_load(output, command)
    assert [index for index, answer in enumerate(answers) if answer] == kept


def test_secrets_are_read_and_not_in_the_command_line() -> None:
    request = Request(Endpoint("h", 80), "/", headers=(("Authorization", 'Bearer "x\\y'),))
    command = probes.build_command([request], **FAST)
    assert "Bearer" not in " ".join(command.argv)
    assert rb'header = "Authorization: Bearer \"x\\y"' in command.input


@pytest.mark.parametrize("rate", [0.5, 3.0, 7.3, 20.0, 74.9, 75.0, 333.0])
def test_the_rate_is_never_above_the_one_ordered(rate: float) -> None:
    command = probes.build_command(
        [Request(Endpoint("h", 80), "/")] * 20, per_second=rate, timeout=2.0, expected_seconds=0.1
    )
    assert command.max_rate <= rate
    assert command.span_seconds >= 20 / rate - 1e-9
    told = [int(line.split('"')[1].split("/")[0]) for line in command.input.decode().splitlines()
            if line.startswith("rate")]  # fmt: skip
    # curl waits whole milliseconds between the starts of two transfers.
    assert sum(1000 / (3_600_000 // each) for each in told) <= rate + 1e-9


def test_a_host_without_curl_is_told() -> None:
    with pytest.raises(LoadError, match="curl did not run on the load host: sh: not found"):
        probes.parse_answers(
            CommandResult((), 127, "", "sh: not found"), [Request(Endpoint("h", 80), "/")]
        )
    printed = (
        "/tmp/x\n\n<autotune bodies /tmp/x>\n\n<autotune ends /tmp/x>\n\n<autotune errors /tmp/x>\n"
        "--rate is unknown\n"
    )
    with pytest.raises(LoadError, match="is unknown"):
        probes.parse_answers(CommandResult((), 0, printed, ""), [Request(Endpoint("h", 80), "/")])


def test_a_page_cannot_pretend_to_be_another_one() -> None:
    page = "==> /tmp/other/body.00001 <==\nforged\n<autotune ends>\n<autotune errors /tmp/other>\n"
    printed = (
        "/tmp/x\n\n<autotune 00000 200 0 9 0.01>{}\n<autotune end 00000>\n"
        "\n<autotune 00001 200 0 2 0.01>{broken\n<autotune end 00001>\n"
        f"\n<autotune bodies /tmp/x>\n==> /tmp/x/body.00000 <==\n{page}"
        "\n==> /tmp/x/body.00001 <==\nok\n<autotune ends /tmp/x>\n\n<autotune errors /tmp/x>\n"
    )
    first, second = probes.parse_answers(
        CommandResult((), 0, printed, ""), [Request(Endpoint("h", 80), "/")] * 2
    )
    assert first is not None
    assert "forged" in first.text
    assert second is not None
    assert second.text == "ok"


def test_steps_are_asked_as_they_are_written() -> None:
    page = LoadPage(SessionStep(path="/cart", method="POST", body="a=1\nb=2"))
    lines = (
        probes.build_config([page.build_request(Request(Endpoint("h", 80), "/"))], 10, 2.0, 1)
        .decode()
        .splitlines()
    )
    assert 'request = "POST"' in lines
    assert r'data-raw = "a=1\nb=2"' in lines
