"""A study from someone else whose records try to become commands, paths or names in an export."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import AutotuneError
from autotune.export.writer import build_export
from autotune.report.studies import Study, open_study

pytestmark = pytest.mark.long

MARK = "PWNED"
EVIL = f"touch /tmp/{MARK}"
HOST = "web1"
HOST_FORMATS = ("ansible", "shell", "patch")
Change = Callable[[dict[str, Any], Path], None]  # of a trial's record, or of its files


def checks(record: dict[str, Any], directory: Path) -> None:
    """As earlier versions recorded how a file is validated, what its units need, and its mode."""
    for host in record["hosts"].values():
        known = host.get("files", {})
        paths = {
            f"/{path.partition('/')[2]}"
            for path in record["files"]
            if path.partition("/")[2] and (not known or f"/{path.partition('/')[2]}" in known)
        }
        host["files"] = {
            path: {"mode": 0o644, "check": ["sh", "-c", EVIL, "%s"], "units": {EVIL: "reload"}}
            for path in paths
        }


def of_host(key: str, name: str, value: object) -> Change:
    def change(record: dict[str, Any], directory: Path) -> None:
        record["hosts"][HOST][key][name] = value

    return change


def original(key: str, name: str, value: object) -> Change:
    def change(record: dict[str, Any], directory: Path) -> None:
        before = record["hosts"][HOST]["original"][key]
        before[name or next(iter(record["hosts"][HOST][key]))] = value

    return change


def deployed(key: str, value: object) -> Change:
    """A file of a host as deployed: its digest or its edits."""

    def change(record: dict[str, Any], directory: Path) -> None:
        record["hosts"][HOST]["files"]["/etc/apache2/apache2.conf"][key] = value

    return change


def hunk(first: object, *added: object) -> list[dict[str, Any]]:
    return [{"start_line": first, "removed": [], "added": list(added)}]


def file(path: str, content: str) -> Change:
    def change(record: dict[str, Any], directory: Path) -> None:
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        record["files"][path] = sha256(content.encode()).hexdigest()

    return change


def unit_file(text: str) -> Change:
    def change(record: dict[str, Any], directory: Path) -> None:
        path = next(p for p in record["files"] if HOST in p and p.endswith("autotune.conf"))
        file(path, f"[Service]\n{text}\n")(record, directory)

    return change


def host(name: str) -> Change:
    def change(record: dict[str, Any], directory: Path) -> None:
        record["hosts"][name] = record["hosts"][HOST]

    return change


RECORDS: dict[str, Change] = {
    "host above": host("../../../elsewhere"),
    "host with a command": host(f"web1\n{EVIL}"),
    "check": checks,
    "unit with a command": of_host("units", f"apache2.service\n{EVIL}", True),
    "unit with a template": of_host("units", f"{{{{ lookup('pipe', '{EVIL}') }}}}", True),
    "unit with a quote": of_host("units", f"a'; {EVIL}; '", True),
    "unit of another service": of_host("units", "ssh.service", True),
    "kernel value of no service": of_host("sysctls", "kernel.core_pattern", f"|{EVIL}"),
    "kernel value with a line": of_host("sysctls", "net.core.somaxconn", f"1\n{EVIL}"),
    "earlier kernel value": original("sysctls", "", f"1'\n{EVIL}"),
    "earlier digest": original("files", "/etc/apache2/apache2.conf", f"x\n{EVIL}"),
    "deployed digest": deployed("sha256", f"$({EVIL})"),
    "deployed file's command": deployed("check", ["sh", "-c", EVIL]),
    "number of a line": deployed("edits", hunk(f"1p;{EVIL}")),
    "no number of a line": deployed("edits", hunk(True)),
    "number before the file": deployed("edits", hunk(0)),
    "lines in one": deployed("edits", hunk(1, f"a\nAUTOTUNE\n{EVIL}\n")),
    "lines that overlap": deployed("edits", [*hunk(9), *hunk(8)]),
    "earlier settings": lambda record, _: record["hosts"][HOST]["original"].update(
        settings={"a": [EVIL]}
    ),
    "earlier unit": original("units", "apache2.service", EVIL),
    "file of no service": file(f"web.{HOST}.apache/etc/cron.d/{MARK}", f"* * * * * root {EVIL}\n"),
    "file above": file(f"web.{HOST}.apache/etc/apache2/..{MARK}", EVIL),
    "file of no part": file(f"web.{HOST}.{MARK}/etc/{MARK}", EVIL),
    "command of a unit": unit_file(f"ExecStartPost={EVIL}"),
    "loaded library": unit_file(f'Environment="LD_PRELOAD={MARK}.so"'),
}
SETTINGS = {
    f"web.apache.ServerLimit\n- {EVIL}": 3,
    f"{MARK}: {{x}}\n.nginx.backlog": 3,
    "web.apache.KeepAliveTimeout": f"{{{{ lookup('pipe', '{EVIL}') }}}}",
    "web.service": f"apache; {EVIL}",
    "web.apache.KeepAlive": f"on\n{EVIL}",
}


def copy_of(modelled: Study, name: str) -> Study:
    directory = modelled.directory.parent / name
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(modelled.directory, directory)
    return open_study(directory)


def changed(study: Study, event: str, change: Callable[[dict[str, Any]], None]) -> Study:
    """The study with a record of trial 1 as someone else wrote it."""
    records = [json.loads(json.dumps(record)) for record in study.records]
    for record in records:
        if record["event"] == event and record.get("trial") == 1:
            change(record)
    journal = study.directory / "events.jsonl"
    journal.write_text("".join(json.dumps(record) + "\n" for record in records))
    return open_study(study.directory)


@pytest.mark.parametrize("fmt", HOST_FORMATS)
@pytest.mark.parametrize("name", RECORDS)
def test_no_record_becomes_a_line_of_a_script(modelled: Study, name: str, fmt: str) -> None:
    study = copy_of(modelled, "stranger")
    configs = study.directory / "configs" / "1"
    study = changed(study, "deployed", lambda record: RECORDS[name](record, configs))
    with pytest.raises(AutotuneError, match="is not exported"):
        build_export(study, study.state.find_trial(1), fmt, include_unchanged=True)


@pytest.mark.parametrize("fmt", ["shell", "yaml", "json"])
@pytest.mark.parametrize("name", SETTINGS)
def test_no_setting_becomes_text_that_the_catalogue_does_not_have(
    modelled: Study, name: str, fmt: str
) -> None:
    study = copy_of(modelled, "stranger")
    study = changed(
        study, "trial", lambda record: record["settings"].update({name: SETTINGS[name]})
    )
    with pytest.raises(AutotuneError, match="is not exported"):
        build_export(study, study.state.find_trial(1), fmt, include_unchanged=True)


@pytest.mark.parametrize("fmt", ["files", "yaml", "json"])
def test_no_effective_value_becomes_text_that_the_catalogue_does_not_have(
    modelled: Study, fmt: str
) -> None:
    name, value = "web.apache.KeepAliveTimeout", f"$({EVIL})"
    study = changed(
        copy_of(modelled, "stranger"),
        "deployed",
        lambda record: record.update(effective={name: value}, differences=[f"{name}: {value}"]),
    )
    with pytest.raises(AutotuneError, match=f"{name} cannot be"):
        build_export(study, study.state.find_trial(1), fmt, include_unchanged=True)


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/etc/cron.d/x", ""),
        ("/etc/nginx/../cron.d/x", ""),
        ("/etc/nginx/nginx.conf", f"a\n{EVIL}"),
    ],
)
def test_no_adopted_file_lies_where_its_service_reads_none(
    modelled: Study, path: str, unit: str
) -> None:
    study = copy_of(modelled, "stranger")
    own = {"lb.lb1.nginx": {"files": {path: {"template": "x", "mode": "0644", "text": EVIL}},
                            "listen": "", "unit": unit}}  # fmt: skip
    records = [json.loads(json.dumps(record)) for record in study.records]
    records[0]["adopted"] = {"own": own, "values": {}, "left": {}, "notes": []}
    (study.directory / "events.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records)
    )
    study = open_study(study.directory)
    with pytest.raises(AutotuneError, match="is not exported"):
        build_export(study, study.state.find_trial(1), "shell", include_unchanged=True)


@pytest.mark.parametrize("fmt", HOST_FORMATS)
def test_a_host_is_not_exported_without_its_secrets(modelled: Study, fmt: str) -> None:
    study = copy_of(modelled, "stranger")
    configs = study.directory / "configs" / "1"
    path = next(p for p in study.state.find_trial(1).files if p.endswith("redis.conf"))
    text = f"{(configs / path).read_text()}requirepass hunter2hunter2\n"
    study = changed(study, "deployed", lambda record: file(path, text)(record, configs))
    with pytest.raises(AutotuneError, match="contains masked values") as raised:
        build_export(study, study.state.find_trial(1), fmt, include_unchanged=True)
    assert "autotune apply" in (raised.value.hint or "")


def of_hosts(modelled: Study, adopted: dict[str, Any] | None) -> Study:
    """The study, as if its hosts had been real, with this record of their own files."""
    study = copy_of(modelled, "of-hosts")
    target = study.directory / "target.yaml"
    target.write_text(re.sub(r"(?m)^simulated:.*\n", "", target.read_text()))
    records = [json.loads(json.dumps(record)) for record in study.records]
    records[0]["adopted"] = adopted
    (study.directory / "events.jsonl").write_text(
        "".join(json.dumps(record) + "\n" for record in records)
    )
    return open_study(study.directory)


@pytest.mark.parametrize("fmt", HOST_FORMATS)
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (None, "does not record which files of its hosts it edits"),
        ({}, r"does not record the files of \w+ that it edits on lb1"),
        ({"own": {}, "values": {}, "left": {}, "notes": []}, r"does not record the files of \w+"),
    ],
)
def test_files_that_are_edited_are_not_exported_as_whole_files(
    modelled: Study, fmt: str, fields: dict[str, Any] | None, why: str
) -> None:
    study = of_hosts(modelled, fields)
    with pytest.raises(AutotuneError, match=why):
        build_export(study, study.state.find_trial(1), fmt, include_unchanged=True)


@pytest.fixture
def edited(modelled: Study) -> Study:
    """The study, as if the store had its own file with a secret, and one line was changed."""
    study, part = copy_of(modelled, "edited"), "store.db1.redis"
    digest = sha256(b"the host's own file").hexdigest()
    change = {"start_line": 2, "removed": ["hz 10\n"], "added": ["hz 20\n"]}
    records = [json.loads(json.dumps(record)) for record in study.records]
    own_file = {"template": "x", "mode": "0644", "text": "own"}
    own = {part: {"files": {REDIS: own_file}, "listen": ""}}
    records[0]["adopted"] = {"own": own, "values": {}, "left": {}, "notes": []}
    for record in records:
        if record["event"] == "deployed":
            directory = study.directory / "configs" / str(record["trial"])
            if directory.exists():
                file(f"{part}{REDIS}", SHOWN_FILE)(record, directory)
            host = record["hosts"]["db1"]
            host["files"][REDIS] = {"sha256": "1" * 64, "edits": [change]}
            host["original"]["files"] = {REDIS: digest}
    journal = study.directory / "events.jsonl"
    journal.write_text("".join(json.dumps(record) + "\n" for record in records))
    return open_study(study.directory)


REDIS = "/etc/redis/redis.conf"
SHOWN_FILE = "# autotune-masked-1-of-2\nhz 20\nkey autotune-masked-2-of-2;\n"


@pytest.mark.parametrize("fmt", HOST_FORMATS)
def test_a_hosts_own_file_is_exported_as_edits(edited: Study, fmt: str) -> None:
    content = build_export(edited, edited.state.find_trial(1), fmt, include_unchanged=True)
    written = {path: data.decode() for path, data in content.items()
               if path not in ("changes.diff", "target.yaml")}  # fmt: skip
    assert not [path for path, text in written.items() if "autotune-masked-1" in text]
    text = "".join(text for path, text in written.items() if "db1" in path)
    assert "hz 20\n" in text
    digests = {file["path"]: (file["before"], file["after"]) for file
               in json.loads(written["manifest.json"])["hosts"]["db1"]["files"]}  # fmt: skip
    assert digests[REDIS] == (sha256(b"the host's own file").hexdigest(), "1" * 64)
    assert all(digest in written["README.md"] for digest in digests[REDIS])
    if fmt == "patch":
        assert "@@ -2,1 +2,1 @@\n-hz 10\n+hz 20\n" in text
        assert f"{digests[REDIS][0]}  {REDIS}\n" in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"added": ["hz autotune-masked-1-of-2;\n"]},
            "changes something other than settings of Redis",
        ),
        (
            {"removed": ["autotune-masked-1-of-2\n"]},
            "changes something other than settings of Redis",
        ),
        ({"start_line": 3}, "the recorded edits of .* do not match the recorded file"),
        (
            {"added": ["hz 20\n", "loadmodule /tmp/x.so\n"]},
            "changes something other than settings of Redis",
        ),
        ({"removed": ["requirepass 1\n"]}, "changes something other than settings of Redis"),
        ({"removed": [], "added": []}, "nothing changes at line 2"),
        ({"removed": ["hz", "10\n"]}, "a line in the middle of a file has no newline"),
    ],
)
def test_edits_that_are_not_those_of_the_file_are_refused(
    edited: Study, change: dict[str, Any], why: str
) -> None:
    study = changed(edited, "deployed", lambda record: record["hosts"]["db1"]["files"][REDIS]["edits"]
                    [0].update(change))  # fmt: skip
    with pytest.raises(AutotuneError, match=why):
        build_export(study, study.state.find_trial(1), "shell", include_unchanged=True)


def test_a_hosts_own_file_is_not_exported_as_a_whole(edited: Study) -> None:
    study = changed(edited, "deployed",
                    lambda record: record["hosts"]["db1"]["files"][REDIS].update(edits=None))  # fmt: skip
    with pytest.raises(AutotuneError, match=r"does not record which lines of .* change"):
        build_export(study, study.state.find_trial(1), "shell", include_unchanged=True)


def test_a_new_file_of_a_host_holds_settings_alone(edited: Study) -> None:
    def change(record: dict[str, Any]) -> None:
        directory = edited.directory / "configs" / str(record["trial"])
        if directory.exists():
            file(f"store.db1.redis{REDIS}", "loadmodule /tmp/x.so\n")(record, directory)
        record["hosts"]["db1"]["original"]["files"][REDIS] = None

    study = changed(edited, "deployed", change)
    with pytest.raises(
        AutotuneError, match=r"line 1 of .* changes something other than settings of Redis"
    ):
        build_export(study, study.state.find_trial(1), "shell", include_unchanged=True)


@pytest.mark.parametrize("fmt", [*HOST_FORMATS, "files", "yaml", "json"])
def test_a_name_of_a_study_stays_on_its_line(modelled: Study, fmt: str) -> None:
    name = f"a`{EVIL.replace('/', '_')}`{{{{ 7*7 }}}}\n{MARK} '\"$(x)<script>"
    study = copy_of(modelled, name)
    content = build_export(study, study.state.find_trial(1), fmt, include_unchanged=True)
    for path, data in content.items():
        assert MARK not in path
        if path != "manifest.json":  # JSON escapes it
            assert not [line for line in data.decode().splitlines() if line.startswith(MARK)]
    readme = content["README.md"].decode()
    assert "<script>" not in readme.replace("\\<script>", "")
    if fmt == "shell":
        assert all(line.startswith("#") for path, data in content.items() if path.endswith(".sh")
                   for line in data.decode().splitlines() if MARK in line)  # fmt: skip


def test_the_study_itself_is_exported(modelled: Study) -> None:
    for fmt in HOST_FORMATS:
        study = copy_of(modelled, "stranger")
        assert build_export(study, study.state.find_trial(1), fmt, include_unchanged=True)
