"""Names, files and outputs of hosts are text wherever they come out, and never control."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar

from autotune import terminal
from autotune.deploy import templates
from autotune.deploy.desired_state import DesiredState
from autotune.deploy.host_state import FileState, HostState
from autotune.deploy.runtime import RuntimeLayout
from autotune.deploy.staged_cases import validate_cases
from autotune.discovery.target_writer import quote_yaml, write_target
from autotune.errors import AutotuneError
from autotune.export import ansible
from autotune.export.host_files import ExportedHosts, HostFile
from autotune.export.scripts import build_script
from autotune.report.page import write_page
from autotune.report.studies import open_study
from autotune.report.text_report import format_report_lines
from autotune.report.view import build_study_view
from autotune.study.directory import StudyLock
from autotune.study.study_state import Phase, Trial
from autotune.study.study_store import StudyStore
from autotune.target.model import Data, Host
from autotune.target.read_target import read_target
from tests.deploy.doubles import Here
from tests.discovery.places import LB, NGINX, POOL, SITE, host, web

STUDIES = Path(__file__).parent / "report" / "studies"
MARKER = "marker-of-code-that-ran"
SECRET = "hunter2hunter2"
INJECTED = "simulated: {seed: 1}"
HOSTILE = [
    f'{{{{ lookup("pipe", "touch {MARKER}") }}}}',
    "{% for x in range(3) %}x{% endfor %}{# gone #}",
    f"$(touch {MARKER})`touch {MARKER}`; touch {MARKER}",
    f'it\'s "{MARKER}" \\ & <script>alert(1)</script>',
    "-rf: [!!python/object x]",
]
TRIAL = Trial(0, Phase.BASELINE, {})


def files_of(directory: Path) -> str:
    """All that is below a directory, as text."""
    return "\n".join(path.read_text() for path in directory.rglob("*") if path.is_file())


# -- what adoption writes ---------------------------------------------------------------------------


def test_a_name_in_a_file_stays_in_its_comment(tmp_path: Path) -> None:
    nginx = NGINX.replace("events {", f'include "x\n{INJECTED}\n#\u2028{INJECTED}";\nevents {{')
    listens = LB.replace("keepalive 16", f'keepalive "16\n{INJECTED}"')
    hosts = [
        web(nginx=nginx),
        host("lb1", "10.0.0.9", {"/etc/nginx/nginx.conf": listens}, "nginx.service"),
    ]
    written = write_target(hosts, tmp_path / "mine.yaml", None, "/")
    text = written.target_file.read_text()
    assert INJECTED in text
    assert INJECTED not in text.splitlines()
    document = YAML(typ="safe").load(text)
    assert "simulated" not in document
    assert read_target(written.target_file).target.simulated is None


@pytest.mark.parametrize("word", [*HOSTILE, "a\nb: c", "a\x07b", "x: y # z", "", "no"])
def test_text_in_yaml_is_what_it_was(word: str) -> None:
    assert YAML(typ="safe").load(f"key: {quote_yaml(word)}") == {"key": word}


def test_secrets_are_nowhere_in_what_adoption_writes(tmp_path: Path) -> None:
    pool = f"{POOL}env[DB_PASSWORD] = {SECRET}\n"
    site = SITE.replace(
        "fastcgi_param CACHE", f"fastcgi_param API_KEY {SECRET}; fastcgi_param CACHE"
    )
    nginx = NGINX.replace(
        "keepalive_timeout", f"# {SECRET[:7]}\n\tset $token {SECRET};\n\tkeepalive_timeout"
    )
    written = write_target(
        [web(pool=pool, site=site, nginx=nginx)], tmp_path / "mine.yaml", None, "/"
    )
    assert SECRET not in files_of(tmp_path)
    assert "autotune-masked-1-of-" in files_of(written.templates_directory)
    assert "is replaced by placeholders and stays on its host" in written.target_file.read_text()
    assert "web.php_fpm.max_children" in written.target_file.read_text()


def test_a_file_name_with_control_characters_is_left_alone(tmp_path: Path) -> None:
    name = "/etc/nginx/conf.d/a\nb.conf"
    files = {"/etc/nginx/nginx.conf": LB.replace("upstream", "include conf.d/*; upstream", 1),
             name: "keepalive_requests 9;\n"}  # fmt: skip
    written = write_target(
        [host("lb1", "10.0.0.9", files, "nginx.service")], tmp_path / "a.yaml", None, "/"
    )
    assert any("control characters" in note for note in written.notes)
    assert [path.name for path in written.templates_directory.rglob("*.j2")] == ["nginx.conf.j2"]


# -- what is deployed -------------------------------------------------------------------------------


def build_desired_state(content: bytes) -> DesiredState:
    files = {"/etc/redis/redis.conf": FileState(content)}
    rendered = {"store.db1.redis": {"/etc/redis/redis.conf": content}}
    return DesiredState({}, (), rendered, {"db1": HostState(files)}, RuntimeLayout())


TEMPLATE = b"requirepass autotune-masked-1-of-1\nhz 20\n"


def test_hosts_get_their_own_secrets_and_records_get_placeholders() -> None:
    own = HostState({"/etc/redis/redis.conf": FileState(f"requirepass {SECRET}\nhz 10\n".encode())})
    filled_in = build_desired_state(TEMPLATE).with_secrets({"db1": own})
    content = filled_in.hosts["db1"].files["/etc/redis/redis.conf"].content
    assert content == f"requirepass {SECRET}\nhz 20\n".encode()
    assert set(filled_in.files.values()) == {TEMPLATE}


@pytest.mark.parametrize("now", [b"hz 10\n", b"requirepass a1b2\nmasterauth a1b2\n", None])
def test_a_placeholder_is_never_deployed(now: bytes | None) -> None:
    own = HostState({"/etc/redis/redis.conf": FileState(now)})
    with pytest.raises(AutotuneError, match=r"the secrets in .* differ"):
        build_desired_state(TEMPLATE).with_secrets({"db1": own})


def test_software_validates_the_secret_and_not_its_placeholder(tmp_path: Path) -> None:
    conf = tmp_path / "redis.conf"
    conf.write_text(f"requirepass {SECRET}\nhz 10\n")
    case: Any = SimpleNamespace(
        name="store.db1.redis",
        placement=SimpleNamespace(directory=str(tmp_path / "try"), adopted=None, host="db1"),
        service=SimpleNamespace(
            build_validation=lambda *_: ("grep", "-c", SECRET, str(conf)),
            list_config_files=lambda _: (),
        ),
    )
    # What is staged belongs to root.
    assert validate_cases(Here(tmp_path), [(case, {str(conf): TEMPLATE})]) == [None]


ESCAPES = [
    "{{ data.parse_raw('gASVCQAAAAAAAABdlC4='.encode(), proto='pickle', allow_pickle=true) }}",
    "{{ data.parse_file('/etc/passwd') }}",
    "{{ data.__class__.__init__.__globals__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ data.model_dump() }}",
]


@pytest.mark.parametrize("template", ESCAPES)
def test_a_template_runs_no_code(template: str) -> None:
    from jinja2 import TemplateError

    with pytest.raises(TemplateError):
        templates.render_text(template, {"data": Data()})


# -- exports ----------------------------------------------------------------------------------------


def of_host(unit: str, *paths: str) -> ExportedHosts:
    files = (HostFile("web1", "web", path, b"x\n", 0o644, None, {unit: "restart"})
             for path in paths)  # fmt: skip
    return ExportedHosts((*files,), {"web1": {unit: True, f"old-{unit}": False}}, {"web1": {}})


@pytest.fixture
def role(tmp_path: Path) -> Any:
    """Write the role of one host with such a unit and files; its directory."""
    study = open_study(shutil.copytree(STUDIES / "improved", tmp_path / "study"))
    tier = study.target.tiers["web"].model_copy(
        update={"hosts": ("web1",), "uses": (), "forwards_to": None}
    )
    hosts = {"web1": Host(transport="local")}
    target = study.target.model_copy(update={"tiers": {"web": tier}, "hosts": hosts})

    def of(unit: str, *paths: str) -> Path:
        other: Any = SimpleNamespace(name=unit, target=target, source=study.target_path,
                                     target_path=study.target_path)  # fmt: skip
        for relative, content in ansible.export_ansible(
            other, TRIAL, of_host(unit, *paths)
        ).items():
            place = tmp_path / "out" / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        return tmp_path / "out" / "ansible"

    return of


@pytest.mark.long
def test_a_file_name_is_no_code_for_ansible(role: Any) -> None:
    """The real ansible-playbook looks for the files of such names, and makes nothing of them."""
    paths = [f"/etc/nginx/conf.d/{word.replace('/', '')}.conf" for word in HOSTILE]
    directory = role("nginx.service", *paths)
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "--check", "-v", "-i", "inventory.yml", "site.yml",
         "-e", f"ansible_python_interpreter={sys.executable}"], cwd=directory,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert not (directory / MARKER).exists()
    for path in paths:
        assert f'"+++ {json.dumps(path)[1:-1]}"' in done.stdout, done.stdout + done.stderr
        assert f"Write {path}" in done.stdout, done.stdout + done.stderr


def _list_rendered_texts(node: Any) -> Iterator[str]:
    """The texts that Ansible renders: values, never keys, that are not tagged as unsafe."""
    if isinstance(node, TaggedScalar):
        assert node.tag.value == "!unsafe", node
    elif isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for inner in node.values() if isinstance(node, dict) else node:
            yield from _list_rendered_texts(inner)


@pytest.mark.parametrize("word", HOSTILE[:2])
def test_names_in_the_role_are_tagged(word: str, role: Any) -> None:
    directory = role(word, f"/etc/nginx/{word.replace('/', '')}.conf")
    ours = ("inventory_hostname", "{{ item", "autotune_", "ansible_check_mode")
    for path in directory.rglob("*.yml"):
        for text in _list_rendered_texts(YAML().load(path)):
            if any(sign in text for sign in ("{{", "{%", "{#")):
                assert any(mark in text for mark in ours), text
                assert word not in text
    tasks = YAML().load(directory / "roles/autotune/tasks/web.yml")
    block = next(task["block"] for task in tasks if "block" in task)
    commands = (task.get("ansible.builtin.command", {}).get("argv", ()) for task in block)
    path = next(argv[-1] for argv in commands if len(argv) == 7)
    assert (path.tag.value, path.value) == ("!unsafe", f"/etc/nginx/{word.replace('/', '')}.conf")


@pytest.mark.parametrize("word", HOSTILE)
def test_a_script_runs_none_of_what_is_in_its_names(word: str, tmp_path: Path) -> None:
    name = f"{word}\ntouch {MARKER}"
    file = HostFile("web1", "web", f"{tmp_path}/root/{name}.conf", f"$(touch {MARKER})\n".encode(),
                    0o644, ("grep", name, "%s"), {})  # fmt: skip
    hosts = ExportedHosts((file,), {"web1": {name: True, f"old {name}": False}}, {"web1": {}})
    text = build_script(name, "web1", hosts)
    tools = tmp_path / "bin"
    tools.mkdir()
    for program in ("systemctl", "grep", "chown", "cp", "sleep"):
        (tools / program).write_text("#!/bin/sh\n")
        (tools / program).chmod(0o755)
    text = text.replace("/var/backups", str(tmp_path / "kept"))
    done = subprocess.run(["sh", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={"PATH": f"{tools}:/usr/bin:/bin"}, timeout=240)  # fmt: skip
    assert list(tmp_path.rglob(f"*{MARKER}")) == [], done.stderr


# -- reports ----------------------------------------------------------------------------------------


def test_reports_have_neither_secrets_nor_markup_nor_control(tmp_path: Path) -> None:
    directory = tmp_path / "study"
    shutil.copytree(STUDIES / "improved", directory)
    hostile = f"\x1b]52;c;ZXZpbA==\x07\x1b[2J<script>alert('{MARKER}')</script>{{{{ 7*7 }}}}"
    for top in (directory / "configs").iterdir():
        for path in list(top.rglob("*.conf")):
            path.write_text(f"{path.read_text()}\n# {hostile} {top.name}\nrequirepass {SECRET}\n")
    lines = (directory / "events.jsonl").read_text().splitlines()
    trial = next(json.loads(line)["trial"] for line in lines if '"event":"trial"' in line)
    failed = {
        "event": "failed",
        "trial": trial,
        "why": hostile,
        "at": "2026-01-01T00:00:00+00:00",
        "fault": False,
    }
    at = next(i for i, line in enumerate(lines) if '"event":"trial"' in line) + 1
    (directory / "events.jsonl").write_text(
        "\n".join([*lines[:at], json.dumps(failed), *lines[at:], ""])
    )
    study = open_study(directory)
    page = write_page(study, tmp_path / "report.html").read_text()
    assert "<script>alert(" not in page
    assert SECRET not in page
    shown = terminal.make_printable(
        "\n".join(line for line, _ in format_report_lines(build_study_view(study)))
    )
    assert "\x1b" not in shown
    assert SECRET not in shown


@pytest.mark.long
def test_a_terminal_in_latin_1_gets_a_report(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "autotune", "report", str(STUDIES / "improved")]
    done = subprocess.run(words, capture_output=True, check=False, timeout=240, cwd=tmp_path,
                          env={"PYTHONIOENCODING": "latin-1", "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("latin-1").count("?") > 0  # in place of arrows and marks


def test_a_study_is_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "studies" / "shop"
    with StudyLock(directory / "lock"):
        store = StudyStore(directory)
        store.record_study_start("shop", "name: shop\n", source="shop.yaml", facts={})
        store.close()
        write_page(open_study(STUDIES / "improved"), directory / "report.html")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (directory, *directory.iterdir())}
    assert modes.pop("shop") == 0o700
    assert set(modes) >= {"lock", "target.yaml", "events.jsonl", "readings.jsonl", "report.html"}
    assert set(modes.values()) == {0o600}
