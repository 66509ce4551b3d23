from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import TargetError
from tests.space.targets import LOCAL, space_of


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("constraints: [web.php_fpm.max_childs <= 3]", "unknown name 'web.php_fpm.max_childs'"),
        ("constraints: ['web.php_fpm.max_children <=']", "expected a value"),
        ("constraints: [web.php_fpm.max_children <= 3]", "the baseline itself breaks"),
        ("constraints: [web.php_fpm.max_children <= 1]", "no values can satisfy"),
    ],
)
def test_bad_constraints_point_at_their_line(tmp_path: Path, more: str, said: str) -> None:
    with pytest.raises(TargetError) as caught:
        space_of(tmp_path, more)
    assert said in caught.value.message
    assert f"target.yaml:{LOCAL.count(chr(10)) + 1}:" in caught.value.message


def test_a_constraint_that_starts_like_the_broken_one_is_not_reported(tmp_path: Path) -> None:
    text = "web.php_fpm.max_children <= 10"
    with pytest.raises(TargetError) as caught:
        space_of(tmp_path, f"constraints:\n- {text}\n- {text} - 7\n")
    assert f"target.yaml:{LOCAL.count(chr(10)) + 3}:" in caught.value.message
