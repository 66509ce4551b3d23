"""What README and docs say to type, typed: a model stands for the hosts of each target file.

The model has the name of the target, so that studies, files and exports are called what the pages
call them. What cannot run here has its reason below, and where it is tried instead.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.modelled import noisy

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
NOT_RUN = {  # by what is in a command
    "#!": "a script of the reader's, not a command",
    "kubectl ": "needs a cluster",
    "pipx ": "installs from a registry: tests/test_packages.py does, by pip and uv",
    "podman ": "tests/test_packages.py, where Podman is",
    "apt-get ": "changes the machine: tests/test_packages.py does so in a container",
    "sudo -u postgres ": "changes the machine: tests/study/database.py makes a database as a user",
    "make ": "what calls this test, or takes a quarter of an hour",
    "/etc/shop": "a script of the reader's, not a command",
    "/opt/shop": "a script of the reader's, not a command",
    "systemctl ": "changes the machine: tests/deploy/test_declared_lab.py",
    "export SESSION": "a variable of the reader's",
    "--install-completion": "changes the shell's own files: tests/cli/test_completion.py",
    "cd role/ansible": "a directory of an export that needs hosts: tests/export/test_playbook_lab.py",
    "ansible-playbook ": "needs hosts: tests/export/test_playbook_lab.py",
    "scripts/setup": "installs packages: tests/test_setup.py does so in a copy",
    "lab up": "boots hosts: tests/lab",
    "scripts.workloads": "boots hosts: tests/workloads",
    "lab down": "ends hosts: tests/lab",
    "lab ssh": "needs a host: tests/lab",
    "init --from": "reads hosts: tests/discovery/test_adopting_lab.py",
    "autotune apply ": "a model has no hosts: tests/study/test_apply_export.py",
    "autotune restore ": "a model has no hosts: tests/study/test_restore.py",
    "--storage": "needs a PostgreSQL: tests/study/test_study_database.py",
    "--headroom": "a model has no generator: tests/lab",
    " shop.yaml": "needs hosts: tests/study/test_wordpress_lab.py, tests/study/test_django_lab.py",
    "autotune export shop": "needs hosts: tests/study/test_wordpress_lab.py",
    "autotune report shop": "needs hosts: tests/study/test_django_lab.py",
    "autotune diff shop": "needs hosts: tests/report/test_diff.py",
    "autotune explain shop": "needs hosts: tests/study/test_explain_study.py",
    "staging.yaml": "needs hosts: tests/loads/test_https.py",
    "autotune export staging": "needs hosts: tests/study/test_wordpress_lab.py",
    "targets/lab.yaml": "needs the lab's hosts: tests/study/test_lab_schedule.py",
    "autotune report lab": "needs the lab's hosts: tests/report/test_recorded.py",
    "autotune export lab": "needs the lab's hosts: tests/export/test_writer.py",
    "--time 15m": "loads this machine for minutes: tests/environments/test_measured_stack.py",
    "targets/command.yaml": "takes minutes: tests/environments/test_command.py",
    "from-log /var/log": "a log of the reader's: tests/study/test_wordpress_lab.py",
}
CODES = {"--at-least": {0, 4}, "plan targets/local.yaml --exit-code": {6}}
STUDIED = ("autotune run targets/local.yaml --metrics-port 9876",
           "autotune export local --out winner --of-a-model")  # fmt: skip
# What a page takes for granted; the study is that of numbers-out.md, so that one is enough.
BEFORE = {"ci-gate": STUDIED, "reading-a-report": STUDIED}
WITH_OUTPUT = {"first-study"}  # pages whose blocks of text are what their commands print
ANY_RUN = re.compile(r"wrote|next:|✓|\[ ?\d|  (baseline|best) +\d")
AS_SHIPPED = {"paper", "declared"}  # they reach no host
BEDS = "beds:\n  a: {simulated: {seed: 3}}\n  b: {simulated: {seed: 4, capacity: 0.8}}\n"


def commands(page: Path) -> Iterator[str]:
    """In blocks of shell, one a line, without comments."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("# "):
                yield from re.sub(r"\s+# .*", "", line).split(" && ")


def reason(command: str) -> str | None:
    """Why it is not run."""
    return next((NOT_RUN[part] for part in NOT_RUN if part in command), None)


def opening(typed: tuple[str, ...]) -> tuple[str, ...]:
    """Up to the first study: pages that begin alike go on from the same one."""
    studies = [
        number for number, command in enumerate(typed) if command.startswith("autotune run ")
    ]
    return typed[: studies[0] + 1] if studies else ()


RUN = {page: tuple(c for c in dict.fromkeys(commands(page)) if reason(c) is None) for page in PAGES}
TYPED = {page: (*BEFORE.get(page.stem, ()), *RUN[page]) for page in PAGES if RUN[page]}
ALIKE = [[page for page in TYPED if opening(TYPED[page]) == begun]
         for begun in dict.fromkeys(map(opening, TYPED.values()))]  # fmt: skip


def test_each_reason_is_that_of_a_command_and_names_a_file_that_is_there() -> None:
    typed = [line for page in PAGES for line in commands(page)]
    assert [part for part in NOT_RUN if not any(part in line for line in typed)] == []
    named = {name for text in NOT_RUN.values() for name in re.findall(r"tests[/.][\w/.]+", text)}
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_blocks_with_commands_are_blocks_of_shell() -> None:
    for page in PAGES:
        for block in re.findall(r"^```\n(.*?)^```", page.read_text(), re.M | re.S):
            assert not re.match(r"(sudo )?(autotune|make|apt-get) ", block), f"{page.name}: {block}"


@pytest.mark.long
@pytest.mark.timeout(3600)  # a page has up to four studies; neighbours may have the CPUs
@pytest.mark.parametrize("pages", ALIKE, ids=lambda pages: "+".join(page.stem for page in pages))
def test_what_pages_say_to_type_works(pages: list[Path], tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    run = f'#!/bin/sh\nexec {sys.executable} -m autotune "$@"\n'
    for name, text in (("autotune", run), ("sudo", '#!/bin/sh\nexec "$@"\n')):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    begun, place = opening(TYPED[pages[0]]), tmp_path / "begun"
    place.mkdir()
    printed = [type_in(command, place, programs) for command in begun]
    for page in pages:
        directory = shutil.copytree(place, tmp_path / page.stem)
        further = [type_in(command, directory, programs) for command in TYPED[page][len(begun) :]]
        if page.stem in WITH_OUTPUT:
            lines = {wording(line) for text in (*printed, *further) for line in text.splitlines()}
            shown = [wording(line) for line in expected_output(page)]
            assert len(shown) > 8
            assert [s for s in shown if not any(line.startswith(s) for line in lines)] == []


def expected_output(page: Path) -> Iterator[str]:
    """The lines of a page that any run prints, whatever is best there."""
    for block in re.findall(r"```text\n(.*?)```", page.read_text(), re.S):
        yield from (line for line in block.splitlines() if ANY_RUN.match(line))


def wording(line: str) -> str:
    """A line without its figures, which depend on the machine."""
    return " ".join(re.sub(r"[\d.,–]+", "0", line).split())


def type_in(command: str, directory: Path, programs: Path) -> str:
    """Run it as a user in this directory, with a model in the place of the target it names.

    Returns what it printed."""
    for name in re.findall(r"targets/([\w-]+)\.yaml", command):
        target = directory / "targets" / f"{name}.yaml"
        if name not in AS_SHIPPED:
            target.parent.mkdir(exist_ok=True)
            text = noisy("budget: {trials: 4, time: 30m}\n" + (BEDS if "--beds" in command else ""))
            target.write_text(text.replace("name: modelled", f"name: {name}"))
    if command.startswith("autotune export ") and "--of-a-model" not in command:
        command += (
            " --of-a-model"  # what a model won is no advice for hosts: it has to be asked for
        )
    if command.startswith("autotune run targets/paper.yaml"):
        command += " --exit-code"  # 4 without the proven gain that README promises of the model
    if re.match(r"autotune (run|explain .*--measure)", command) and "--yes" not in command:
        command += " --yes"  # nobody is there to be asked
    done = subprocess.run(
        ["sh", "-c", command], cwd=directory, capture_output=True, text=True, timeout=1200, check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "BROWSER": "true",
             "HOME": str(directory), "PWD": str(directory)},
    )  # fmt: skip
    codes = next((codes for part, codes in CODES.items() if part in command), {0})
    assert done.returncode in codes, f"{shlex.quote(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
