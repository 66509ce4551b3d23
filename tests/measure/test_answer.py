from __future__ import annotations

import pytest

from autotune.measure.answer import Answer, Fault, Unusable, Value, parse


@pytest.mark.parametrize(
    ("printed", "answer"),
    [
        ('{"value": 41.2}\n', Value(41.2)),
        ('{"value": 7, "sd": 0.5}', Value(7.0, 0.5)),
        ('{"value": -1e3, "sd": null, "note": "kept"}', Value(-1000.0)),
        ('warming up\n{"progress": 1}\n{"value": 0}\n\n', Value(0.0)),
        ('{"infeasible": "out of memory"}', Unusable("out of memory")),
        ('{"infeasible": true}', Unusable("no reason given")),
    ],
)
def test_answers(printed: str, answer: Answer) -> None:
    assert parse(printed) == answer


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("", "it printed no answer"),
        ("\n \n", "it printed no answer"),
        ('{"value": 1}\ndone\n', "its last line is no JSON: done"),
        ("41.2", "neither"),
        ("[1]", "neither"),
        ('{"valeu": 1}', "neither"),
        ('{"value": 1, "infeasible": "both"}', "neither"),
        ('{"value": "41"}', '"value" is no finite number: "41"'),
        ('{"value": true}', '"value" is no finite number: true'),
        ('{"value": NaN}', '"value" is no finite number: NaN'),
        ('{"value": 1e999}', '"value" is no finite number: Infinity'),
        ('{"value": 1' + "0" * 400 + "}", '"value" is no finite number'),
        ('{"value": 1, "sd": -1}', '"sd" is no number of 0 or more: -1'),
        ('{"value": 1, "sd": "x"}', '"sd" is no number of 0 or more'),
        ('{"infeasible": null}', '"infeasible" says why'),
    ],
)
def test_what_cannot_be_read_is_the_commands_fault(printed: str, why: str) -> None:
    answer = parse(printed)
    assert isinstance(answer, Fault)
    assert why in answer.why
    assert len(answer.why) < 250
