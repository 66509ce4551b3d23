"""Names in a target that exist nowhere are told before any host is reached, all at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune import errors, exit_handling
from autotune.cli import app
from autotune.environments.preparation import prepare
from autotune.errors import AutotuneError, TargetError
from autotune.target.read_target import read_target
from tests.printed import printed

ROOT = Path(__file__).parents[2]
PAPER = (ROOT / "targets" / "paper.yaml").read_text()
# Nobody answers there: reaching the host would be another error, and a slow one.
REMOTE = """\
name: shop
slo: {p99: 50ms}
hosts: {web1: {address: 198.18.255.254}}
tiers:
  lb: {hosts: web1, service: SERVICE, MORE}
"""


def refused(tmp_path: Path, text: str) -> TargetError:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(TargetError) as caught:
        prepare(read_target(path))
    return caught.value


@pytest.mark.parametrize("service", ["squid", "oracle", "mysql", "nginx+puma", "php-fpm", "ngnix"])
@pytest.mark.parametrize("more", ["port: 80", "runtime: embedded"])
def test_an_unknown_service_is_an_error_before_any_connection(
    service: str, more: str, tmp_path: Path
) -> None:
    error = refused(tmp_path, REMOTE.replace("SERVICE", service).replace("MORE", more))
    assert error.message == f"{tmp_path}/t.yaml:5:21: unknown service {service!r}"
    assert ("mariadb" if service == "mysql" else "nginx") in str(error.hint)
    assert error.excerpt.splitlines()[1].index("^") == 20


def test_a_model_with_an_unknown_service_is_refused_alike(tmp_path: Path) -> None:
    error = refused(tmp_path, PAPER.replace("service: memcached", "service: squid"))
    assert "unknown service 'squid'" in error.message


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("generator: httperf", "generator: vegeta", "unknown generator 'vegeta'"),
        ("generator: httperf", "uris: none.txt", "cannot read none.txt"),
        ("budget:", "search: {sampler: bayesian}\nbudget:", "unknown sampler 'bayesian'"),
        ("app: reference", "app: wordpress", "unknown application 'wordpress'"),
        ("max_children: ", "max_childs: ", "unknown parameter 'web.php_fpm.max_childs'"),
    ],
)
def test_what_only_a_run_noticed_is_checked(
    before: str, after: str, message: str, tmp_path: Path
) -> None:
    assert before in PAPER
    error = refused(tmp_path, PAPER.replace(before, after))
    assert message in error.message
    assert error.others == ()


def test_two_tiers_that_nobody_forwards_to_are_asked_about(tmp_path: Path) -> None:
    error = refused(tmp_path, PAPER.replace("apache, nginx], forwards_to: web", "apache, nginx]"))
    assert "ambiguous entry tier: no tier forwards to or uses lb or web" in error.message
    assert "`lb: {…, forwards_to: web}`" in str(error.hint)


def test_all_mistakes_are_told_in_the_order_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAPER.replace("service: redis", "service: rediss").replace("service: memc", "service: m")
    path = tmp_path / "t.yaml"
    path.write_text(text.replace("generator: httperf", "generator: oha2"))
    words = ["check", str(path), "--json"]
    code = exit_handling.run_command(lambda: app(words, standalone_mode=False), as_json=True)
    assert code == errors.INVALID_TARGET_EXIT_CODE
    captured = capsys.readouterr()
    error = printed("error", captured.out)["error"]
    services = ["unknown service 'mached'", "unknown service 'rediss'"]
    messages = [mistake["message"] for mistake in error["mistakes"]]
    assert [m.split(": ", 1)[1] for m in messages] == [*services, "unknown generator 'oha2'"]
    assert error["message"] == messages[0]
    assert captured.err.count("^") == 3


def test_nothing_is_asked_or_left_where_nothing_can_stay(tmp_path: Path) -> None:
    paper = ROOT / "targets" / "paper.yaml"
    export = tmp_path / "export.json"
    export.write_text('{"parameters": {}}')
    for words in (["apply", str(export), str(paper)], ["run", str(paper), "--keep"]):
        done = CliRunner().invoke(app, [*words, "--studies", str(tmp_path / "studies")])
        assert "a model has no hosts" in str(done.exception)
        assert "Go ahead" not in done.output
    assert not (tmp_path / "studies").exists()


@pytest.mark.parametrize("word", ["on", "true"])
def test_a_switch_is_written_as_params_shows_it(word: str, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    rule = re.compile(r"(lb.nginx.reuseport: +)\{drop: true\}")
    path.write_text(rule.sub(rf"\1{{fixed: {word}}}", PAPER))
    assert prepare(read_target(path)).space.baseline["lb.nginx.reuseport"] is True


@pytest.mark.parametrize("lines", [0, 1])
def test_a_reader_who_has_seen_enough_is_no_error(lines: int) -> None:
    words = f"{sys.executable} -m autotune params | head -n {lines}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "command", ["plan T", "measure T --yes", "sweep T --yes --peak", "apply E T"]
)
def test_a_command_for_one_stack_names_no_option_for_beds_that_it_lacks(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    beds = "beds: {a: {}, b: {}}\n"
    text = REMOTE.replace("198.18.255.254", '"web1.{bed}.example"').replace("MORE", "port: 80")
    Path("T").write_text(text.replace("SERVICE", "nginx") + beds)
    done = CliRunner().invoke(app, command.split())
    assert isinstance(done.exception, AutotuneError)
    assert "differ between beds" in done.exception.message
    assert "other commands need a target with the addresses of one bed" in str(done.exception.hint)
