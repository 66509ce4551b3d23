"""Templates of configuration files, as deployments render them."""

from __future__ import annotations

from pathlib import Path

from autotune.deploy.templates import render_file


def test_a_running_study_keeps_its_templates(tmp_path: Path) -> None:
    template, included = tmp_path / "shop.conf.j2", tmp_path / "limits.conf.j2"
    template.write_text('threads {{ threads }}\n{% include "limits.conf.j2" %}')
    included.write_text("queue 8\n")
    assert render_file((tmp_path,), template.name, {"threads": 4}) == b"threads 4\nqueue 8\n"
    template.write_text("threads 1\n")
    included.write_text("queue 1\n")
    assert render_file((tmp_path,), template.name, {"threads": 5}) == b"threads 5\nqueue 8\n"
