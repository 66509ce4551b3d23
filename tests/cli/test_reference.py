"""Every command and option is documented, and the documentation is about nothing else."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.main import get_command

from autotune import errors
from autotune.cli import app
from autotune.cli.help import COMMAND_GROUPS
from autotune.environments.peak import LIMITED_VERDICT
from autotune.loads.reference import GENERATOR_REFERENCES
from autotune.loads.registry import CLOSED_LOOP_GENERATORS, LOAD_GENERATORS
from autotune.report import warnings
from autotune.services.base import Endpoint, Placement, Role, Service, TrialStart
from autotune.services.reference import SECOND_INSTANCE_TEXT
from autotune.services.registry import SHIPPED, load_references
from scripts import reference_results
from scripts.cli_reference import FILE, MANUAL, REPOSITORY, commands, help_of, manual, text
from scripts.reference import troubleshooting
from scripts.reference.__main__ import MODULES

DOCS = FILE.parent
SWEEPS = REPOSITORY / "targets" / "sweeps"
PAGES = {path: page for module in MODULES for path, page in module.pages().items()}
EVERY_PAGE = sorted(DOCS.rglob("*.md"))
SHELLS = ("sh", "perl")
REFERENCE = text()


def test_the_reference_is_what_help_says() -> None:
    assert FILE.read_text() == REFERENCE, "run python -m scripts.cli_reference"


def test_the_man_page_is_what_help_says() -> None:
    assert MANUAL.read_text() == manual(), "run python -m scripts.cli_reference"
    for words in commands():
        assert f".SH AUTOTUNE {' '.join(words).upper()}\n" in MANUAL.read_text()


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_a_generated_page_is_made_from_the_code(path: Path) -> None:
    assert (REPOSITORY / path).read_text() == PAGES[path], "run python -m scripts.reference"


def test_every_service_has_a_page_and_no_page_is_left_over() -> None:
    names = {service.name for service in SHIPPED.services}
    assert {*load_references()} == names
    assert {path.name for path in (DOCS / "services").iterdir()} == {
        "README.md", *(f"{name}.md" for name in names)
    }  # fmt: skip


def program(argv: Sequence[str]) -> str:
    """The program of a command without its version: `php-fpm8.4` is `php-fpm`."""
    return Path(argv[0]).name.rstrip("0123456789.")


@pytest.mark.parametrize(
    "service", [s for s in SHIPPED.services if s.role != Role.HOST], ids=lambda s: s.key
)
def test_a_page_of_a_service_names_the_programs_that_check_and_show_it(service: Service) -> None:
    """Of scripts only the names inside are known, so those are not looked for."""
    site = Placement(
        tier="web", host="h", role=service.role, directory="/run/a", installed=True,
        listen=Endpoint("10.0.0.1", service.port or 80),
        programs={name: some[0] for name, some in service.programs.items()},
    )  # fmt: skip
    reference = load_references()[service.name]
    files = {file.path: b"" for file in service.list_config_files(site)}
    check = service.build_validation(site, files)
    if isinstance(check, TrialStart):
        assert reference.validated == SECOND_INSTANCE_TEXT
    elif check and check[0] not in SHELLS:
        assert program(check) in reference.validated
    shown = [program(readback.argv) for readback in service.list_readbacks(site)]
    assert [name for name in shown if name not in SHELLS and name not in reference.read_back] == []


def test_every_generator_is_on_the_page_of_generators() -> None:
    names = [reference.name for reference in GENERATOR_REFERENCES]
    assert len(names) == len({*names})
    assert {*LOAD_GENERATORS, *CLOSED_LOOP_GENERATORS} <= {*names}


def test_every_warning_of_the_code_is_on_the_page_of_warnings() -> None:
    """And no other: `_warning` takes meaning and advice from the list that the page shows."""
    source = inspect.getsource(warnings)
    made = {*re.findall(r'_warning\(\s*"([a-z-]+)"', source)} | {LIMITED_VERDICT}
    assert made == {*warnings.WARNING_KINDS}
    assert "yield StudyWarning(" not in source


def test_every_exit_code_of_an_error_is_listed() -> None:
    listed = [each.code for each in errors.EXIT_CODES]
    assert listed == sorted({*listed})
    kinds = [kind for kind in vars(errors).values()
             if isinstance(kind, type) and issubclass(kind, errors.AutotuneError)]  # fmt: skip
    assert len(kinds) > 3
    assert {kind.exit_code for kind in kinds} <= {*listed}


def test_every_error_with_a_hint_is_on_the_page_of_troubleshooting() -> None:
    """A new one, in a module of any package."""
    module = "def f(host):\n    raise AutotuneError(f'{host.name} refused', hint='see its log')\n"
    assert [*troubleshooting.errors_with_hints(ast.parse(module), {})] == [
        ("NAME refused", "see its log")
    ]


def test_a_value_that_continues_a_word_is_not_part_of_that_word() -> None:
    """The value is a reason or nothing, and a word in capital letters would hide where it starts."""
    module = "AutotuneError(f'{host.name}{text} gave no size{details}', hint='see its log')\n"
    assert [*troubleshooting.errors_with_hints(ast.parse(module), {})] == [
        ("NAME… gave no size…", "see its log")
    ]


def test_a_constant_is_shown_with_its_value() -> None:
    module = (
        "AutotuneError(f'{host.name} lacks curl', hint=f'install {programs.PACKAGE}, {ARGUMENT}')\n"
    )
    assert [*troubleshooting.errors_with_hints(ast.parse(module), {"PACKAGE": "curl"})] == [
        ("NAME lacks curl", "install curl, ARGUMENT")
    ]


def test_the_page_of_reference_figures_is_what_was_recorded() -> None:
    page = reference_results.FILE.read_text()
    assert page == reference_results.text(), "run python -m scripts.reference_results"
    for name in reference_results.notes()["figures"]:
        assert (SWEEPS / f"lab-{name}.yaml").exists()


def test_help_has_every_command_in_one_group() -> None:
    grouped = [name for names in COMMAND_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted({words[0] for words in commands()})


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_option_says_what_it_is_for(words: list[str]) -> None:
    section = REFERENCE.split(f"## `autotune {' '.join(words)}`\n")[1].split("\n## ")[0]
    options = re.findall(r"^  (-\S.*)$", section, re.M)
    assert options
    lines = section.splitlines()
    for option in options:
        following = lines[lines.index(f"  {option}") + 1]
        assert re.search(r"\S  +\S", option) or following.startswith("     "), option


def test_names_of_arguments_and_values_are_in_capitals() -> None:
    """No types of Python, no braces, no ranges as formulas; `all|A,B` and `[ADDRESS:]PORT` are fine."""
    for words in [[], *commands()]:
        text = help_of(words)
        assert not re.search(r"[<{}]|\bx>=", text.split("Examples:")[0].replace("{time: …}", "").replace(
            "{trials: …}", "")), words  # fmt: skip
        options = re.findall(r"(?m)^  (?:-\w, )?--[\w-]+ ?(\S*)", text)
        assert [name for name in options if re.fullmatch(r"[a-z]+", name)] == [], words


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = re.findall(
        r"[\w/-]+\.md", (REPOSITORY / "mkdocs.yml").read_text().split("nav:")[1]
    )
    assert sorted(navigation) == sorted(page.relative_to(DOCS).as_posix() for page in EVERY_PAGE)


def shell_lines() -> list[str]:
    """Commands in blocks of shell in README.md and docs, without comments."""
    pages = [REPOSITORY / "README.md", *EVERY_PAGE]
    blocks = [
        block for page in pages for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S)
    ]
    lines = [re.sub(r"\s#.*", "", line) for block in blocks for line in block.splitlines()]
    parts = [part.strip() for line in lines for part in re.split(r"&&|\|", line)]
    return sorted({part for part in parts if re.match(r"(sudo )?autotune ", part)})


@pytest.mark.parametrize("line", shell_lines())
def test_every_command_in_a_block_of_shell_is_one_that_can_be_typed(line: str) -> None:
    """Its options are there, and its arguments are as many as it takes; nothing is run."""
    words = shlex.split(line.removeprefix("sudo "))[1:]
    command = get_command(app)
    while isinstance(getattr(command, "commands", None), dict):
        if words[0].startswith("-"):
            return  # an option of autotune itself
        command = command.commands[words.pop(0)]
    assert command.make_context(command.name, words).params


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda path: path.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", EVERY_PAGE, ids=lambda path: path.stem)
def test_commands_that_are_named_exist(page: Path) -> None:
    known = {words[0] for words in commands()}
    for name in re.findall(r"`autotune ([a-z]+)", page.read_text()):
        assert name in known, f"{page.name}: autotune {name}"
