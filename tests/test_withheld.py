"""Secrets in real-life lines of all services' files: none leaves its host; tuned lines stay readable."""

from __future__ import annotations

import json
import shutil
import string
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ruamel.yaml import YAML

from autotune.deploy import adopted_files
from autotune.discovery.host_reading import DiscoveredHost
from autotune.discovery.target_writer import write_target
from autotune.discovery.tier_adoption import AdoptedTier
from autotune.errors import AutotuneError
from autotune.export.writer import build_export
from autotune.masking import (
    find_secret_words,
    mask_changed_lines,
    mask_secrets,
    outline_unknown_syntax,
    remove_words,
    restore_secrets,
)
from autotune.report.diff import format_diff
from autotune.report.page import render_page
from autotune.report.studies import open_study
from autotune.report.text_report import format_report_lines
from autotune.report.view import build_study_view
from autotune.services.registry import SHIPPED
from tests.discovery.places import host
from tests.discovery.test_tier_adoption import adopted, rendered

STUDY = Path(__file__).parent / "report" / "studies" / "improved"
CASES: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("withheld.yaml"))
LETTERS = string.ascii_letters + string.digits
BY_CASE = pytest.mark.parametrize(
    "case", CASES, ids=[f"{number}-{case['service']}" for number, case in enumerate(CASES)]
)


def filled(case: dict[str, Any]) -> tuple[str, list[str]]:
    """The file of a case with all of its lines, and the secret of each."""
    random = Random(case["path"])
    secrets = ["".join(random.choices(LETTERS, k=20)) for _ in case["lines"]]
    lines = (line.replace("§", secret) for line, secret in zip(case["lines"], secrets, strict=True))
    return case["text"].replace("@LINES", "\n".join(lines)), secrets


def discover_host(case: dict[str, Any], text: str) -> DiscoveredHost:
    unit = {f"/etc/systemd/system/{case['units'][0]}": case["unit"]} if "unit" in case else {}
    files = {**case.get("others", {}), **unit, case["path"]: text}
    made = host("h1", "10.0.0.9", files, *case["units"])
    return replace(made, backlogs=case.get("listening", {}))


def tier_of(case: dict[str, Any], text: str) -> AdoptedTier:
    deployment = case.get("deployment", case["service"])
    (tier,) = (tier for tier in adopted(discover_host(case, text)).values()
               if tier.discovered_tier.deployment == deployment)  # fmt: skip
    return tier


def test_there_are_enough_lines(capsys: pytest.CaptureFixture[str]) -> None:
    count = sum(len(case["lines"]) for case in CASES)
    with capsys.disabled():
        print(f"\n{count} lines with a secret")
    assert count >= 120
    keys = {case.get("key", case["service"]) for case in CASES}
    assert {
        key for key in SHIPPED.map_adoptions() if key not in ("apache-mod-php", "php-ini-apache2")
    } <= keys


@BY_CASE
def test_a_secret_stays_on_its_host(case: dict[str, Any]) -> None:
    text, secrets = filled(case)
    outliner = SHIPPED.map_adoptions()[case.get("key", case["service"])].visible.build_outliner(
        case["path"]
    )
    shown = mask_secrets(text, outliner)
    assert [secret for secret in secrets if secret in shown] == []
    assert [line for line in case["shown"] if line not in shown] == []
    assert mask_secrets(shown, outliner) == shown
    assert shown.count("\n") == text.count("\n")
    assert restore_secrets(shown.encode(), text.encode(), "it", outliner) == text.encode()
    assert not any(secret in mask_secrets(text, outline_unknown_syntax) for secret in secrets)
    unlike = mask_changed_lines(text.encode(), b"a\n", outliner).decode()
    assert not any(secret in unlike for secret in secrets)


@BY_CASE
def test_what_software_says_of_a_line_has_no_secret(case: dict[str, Any]) -> None:
    text, secrets = filled(case)
    outliner = SHIPPED.map_adoptions()[case.get("key", case["service"])].visible.build_outliner(
        case["path"]
    )
    words = find_secret_words(text.encode(), outliner)
    for line in text.splitlines():
        said = remove_words(f'{case["path"]}:7: invalid "{line}" near {line.split()[-1:]}', words)
        assert not any(secret in said for secret in secrets)
        assert case["path"] in said


@BY_CASE
def test_an_adopted_file_is_deployed_as_it_was_and_written_without_secrets(
    case: dict[str, Any], tmp_path: Path
) -> None:
    if case.get("only_masked"):
        return
    text, secrets = filled(case)
    tier = tier_of(case, text)
    assert rendered(tier)[f"h1{case['path']}"] == text
    written = json.dumps(adopted_files.build_record(tier.adopted_configs)) + "".join(
        tier.templates.values()
    )
    assert not any(secret in written for secret in secrets)
    target = write_target([discover_host(case, text)], tmp_path / "own.yaml", None, "/").target_file
    everything = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert target.exists()
    assert not any(secret in content for secret in secrets for content in everything)


@BY_CASE
def test_a_study_its_report_and_its_export_have_no_secret(
    case: dict[str, Any], tmp_path: Path
) -> None:
    text, secrets = filled(case)
    outliner = SHIPPED.map_adoptions()[case.get("key", case["service"])].visible.build_outliner(
        case["path"]
    )
    directory = tmp_path / "study"
    shutil.copytree(STUDY, directory)
    for path in (directory / "configs" / "1").rglob("*.conf"):
        path.write_text(mask_secrets(text, outliner))
    study = open_study(directory)
    view = build_study_view(study)
    shown = "".join(line for line, _ in format_report_lines(view, 100)) + render_page(view)
    diff = format_diff(study)
    assert diff
    shown += diff
    assert not any(secret in shown for secret in secrets)
    try:
        files = build_export(study, view.conclusion.sides["best"].trial)
        shown = "".join(content.decode() for content in files.values())
    except AutotuneError as error:  # a refusal is no less a text that is shown
        shown = f"{error.message}\n{error.hint}"
    assert not any(secret in shown for secret in secrets)
