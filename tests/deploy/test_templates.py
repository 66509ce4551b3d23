"""Templates of configuration files, as deployments render them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.deploy.templates import render_file
from autotune.errors import RenderError


def test_a_running_study_keeps_its_templates(tmp_path: Path) -> None:
    template, included = tmp_path / "shop.conf.j2", tmp_path / "limits.conf.j2"
    template.write_text('threads {{ threads }}\n{% include "limits.conf.j2" %}')
    included.write_text("queue 8\n")
    assert render_file((tmp_path,), template.name, {"threads": 4}) == b"threads 4\nqueue 8\n"
    template.write_text("threads 1\n")
    included.write_text("queue 1\n")
    assert render_file((tmp_path,), template.name, {"threads": 5}) == b"threads 5\nqueue 8\n"


@pytest.mark.parametrize("text", ["{{ 8 // (threads - 1) }}", '{{ "x" + threads }}'])
def test_an_error_of_an_expression_names_the_template(tmp_path: Path, text: str) -> None:
    """The values of one candidate may be at fault, so that the trial fails and not the study."""
    with pytest.raises(RenderError, match=r"shop\.conf\.j2: \w+Error: "):
        render_file((tmp_path,), "shop.conf.j2", {"threads": 1}, text)
