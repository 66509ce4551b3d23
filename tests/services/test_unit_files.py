"""Which file of a unit says what is started, as systemd reads a unit and its drop-ins."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from autotune.services.config_files import FileTree
from autotune.services.unit_environment import expand_command, read_environment
from autotune.services.unit_files import (
    UNIT_RUN_SCRIPT,
    find_exec_start,
    find_units_mentioning,
    find_unread_drop_ins,
    list_unit_files,
    parse_directives,
)

UNIT = "app.service"
OWN = f"/usr/lib/systemd/system/{UNIT}"
PACKAGED, LOCAL = f"{OWN}.d", f"/etc/systemd/system/{UNIT}.d"


def unit(command: str) -> bytes:
    return f"[Service]\nExecStart=\nExecStart={command}\n".encode()


@pytest.mark.parametrize(
    ("drop_ins", "path"),
    [
        ({}, OWN),
        ({f"{PACKAGED}/a.conf": unit("/bin/a")}, f"{PACKAGED}/a.conf"),
        # By their names, whatever directory they are in (systemd.unit(5)) …
        ({f"{LOCAL}/a.conf": unit("/bin/a"), f"{PACKAGED}/z.conf": unit("/bin/z")},
         f"{PACKAGED}/z.conf"),
        ({f"{LOCAL}/z.conf": unit("/bin/a"), f"{PACKAGED}/a.conf": unit("/bin/z")},
         f"{LOCAL}/z.conf"),
        # … and of two with one name, that of /etc alone.
        ({f"{LOCAL}/a.conf": unit("/bin/a"), f"{PACKAGED}/a.conf": unit("/bin/z")},
         f"{LOCAL}/a.conf"),
        ({f"{LOCAL}/a.conf": unit("/bin/a"), f"{LOCAL}/b.conf": b"[Service]\nLimitNOFILE=9\n"},
         f"{LOCAL}/a.conf"),
    ],
)  # fmt: skip
def test_the_last_command_takes_effect(drop_ins: dict[str, bytes], path: str) -> None:
    tree = FileTree({OWN: unit("/bin/own"), **drop_ins})
    starts = find_exec_start(tree, UNIT)
    assert starts is not None
    assert starts[0] == path
    assert starts[0] in list_unit_files(tree, UNIT)


def test_a_unit_that_is_not_there_starts_nothing() -> None:
    assert find_exec_start(FileTree(), UNIT) is None


@pytest.mark.parametrize(
    "after",
    ["", "\n", "\n\nRestart=always\n", "\n  \nRestart=always", "\n# a comment\n\nRestart=always\n"],
)
def test_an_empty_line_ends_a_command_whose_last_line_is_continued(after: str) -> None:
    lines = {
        line.name.text: [word.text for word in line.arguments]
        for line in parse_directives(f"[Service]\nExecStart=/bin/app --a \\\n  --b \\{after}")
    }
    assert lines.pop("ExecStart") == ["/bin/app", "--a", "--b"]
    assert lines == ({"Restart": ["always"]} if "Restart" in after else {})


ETC, SRV = "/etc/systemd/system", "/srv/shop/deploy"


@pytest.mark.parametrize(
    ("links", "files", "unit"),
    [
        ({}, [f"{ETC}/shop.service"], "shop.service"),
        ({}, [f"{ETC}/shop.service.d/own.conf"], "shop.service"),
        # A file of the application, under the name of its link.
        ({f"{ETC}/shop.service": f"{SRV}/web.service"}, [f"{SRV}/web.service"], "shop.service"),
        (
            {f"{ETC}/shop.service.d/own.conf": f"{SRV}/web.conf"},
            [f"{SRV}/web.conf"],
            "shop.service",
        ),
        # Another name for a unit.
        ({f"{ETC}/web.service": OWN}, [OWN], UNIT),
        ({f"{ETC}/web.service": f"{ETC}/shop.service"}, [f"{ETC}/shop.service"], "shop.service"),
    ],
)
def test_a_unit_has_one_name_whatever_its_file_is_called(
    links: dict[str, str], files: list[str], unit: str
) -> None:
    tree = FileTree(dict.fromkeys(files, b"[Service]\nExecStart=/bin/shop\n"), links)
    assert find_units_mentioning(tree, "shop") == (unit,)


def check_options(
    printed: dict[str, str],
    place: Path,
    command: tuple[str, ...] = ("/bin/shop", "-w"),
    accounts: dict[str, str] | None = None,
    **variables: str,
) -> list[str]:
    """The options of the unit that a check runs in, where systemctl prints these properties, and the
    unit's processes have these accounts.
    """
    lines = "".join(
        f"{name}) printf '%s\\n' {shlex.quote(text)} ;; " for name, text in printed.items()
    )
    programs = {"systemctl": f"case $4 in {lines}esac", "systemd-run": 'printf "%s\\n" "$@"'}
    if accounts:
        programs["cat"] = f"echo {' '.join(accounts)}"
        cases = "".join(f"/proc/{pid}/*) echo {text} ;; " for pid, text in accounts.items() if text)
        programs["awk"] = f"case $2 in {cases}esac"
    for name, text in programs.items():
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", UNIT_RUN_SCRIPT, "sh", "shop.service", "--check", *command],
        env={"PATH": f"{place}:{os.environ['PATH']}", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    options, words = (text.splitlines() for text in done.stdout.split("--\n", 1))
    assert words == [*command, "--check"]
    return [line for line in options if line.startswith("--property=")]


@pytest.mark.parametrize(
    ("printed", "given"),
    [("/srv/shop", "/srv/shop"), ("!/srv/shop", "-/srv/shop"), ("!~", "-~")],
)
def test_a_directory_that_may_be_missing_may_be_missing_for_a_check(
    printed: str, given: str, tmp_path: Path
) -> None:
    options = check_options({"WorkingDirectory": printed}, tmp_path)
    assert options == [f"--property=WorkingDirectory={given}"]


def test_a_check_reads_files_of_variables_in_the_order_of_the_unit(tmp_path: Path) -> None:
    printed = "/etc/a.env (ignore_errors=no)\n/etc/b.env (ignore_errors=yes)\n/c (ignore_errors=no)"
    options = check_options({"EnvironmentFiles": printed}, tmp_path)
    assert options == [
        f"--property=EnvironmentFile={path}" for path in ("/etc/a.env", "-/etc/b.env", "/c")
    ]


@pytest.mark.parametrize(
    ("tree", "unread"),
    [
        (FileTree({f"{LOCAL}/a.conf": b""}), {}),
        (FileTree(links={f"{LOCAL}/a.conf": "/dev/null"}), {}),
        (FileTree(unread={f"{LOCAL}/a.conf": "it is larger than 512 KB"}),
         {f"{LOCAL}/a.conf": "it is larger than 512 KB"}),
        (FileTree({f"{LOCAL}/a\nb.conf": b""}),
         {f"{LOCAL}/a\\nb.conf": "its name contains control characters"}),
        (FileTree(links={f"{LOCAL}/a.conf": "/srv/a.conf"}),
         {f"{LOCAL}/a.conf": "it is a link to /srv/a.conf, which is missing or not a small text file"}),
    ],
)  # fmt: skip
def test_a_drop_in_that_was_not_read_is_named(tree: FileTree, unread: dict[str, str]) -> None:
    tree = tree.merge(FileTree({OWN: unit("/bin/own")}))
    assert find_unread_drop_ins(tree, UNIT) == unread
    environment = read_environment(tree, UNIT)
    assert environment.unread_files == tuple(unread)
    assert expand_command(tree, UNIT) == ("/bin/own",)


def test_words_of_a_process_are_no_options_of_the_unit_of_its_check(tmp_path: Path) -> None:
    """The account of the service can change the command line of its process."""
    options = check_options({"User": "shop"}, tmp_path, ("--uid=0", "/srv/shop/own"))
    assert options == ["--property=User=shop"]


@pytest.mark.parametrize(
    ("printed", "variables", "expected"),
    [
        ({}, {}, ["User=33", "Group=34"]),
        ({"User": "shop"}, {}, ["User=shop"]),
        ({"User": "root"}, {}, ["User=root", "User=33", "Group=34"]),
        ({}, {"AUTOTUNE_AS_ROOT": "1"}, []),
    ],
)
def test_the_check_of_a_unit_that_starts_as_root_has_the_account_that_serves(
    printed: dict[str, str], variables: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    accounts = {"11": "", "12": "33:34", "13": "33:34"}
    printed = {"ControlGroup": "/shop", **printed}
    options = check_options(printed, tmp_path, accounts=accounts, **variables)
    assert options == [f"--property={option}" for option in expected]


@pytest.mark.parametrize(
    ("accounts", "command"),
    [
        ({"12": "33:34", "13": "35:36"}, ("/bin/shop", "-w")),
        ({"12": "33:34"}, ("/usr/sbin/runuser", "-u", "shop", "--", "/bin/shop")),
    ],
)
def test_the_check_of_other_units_that_start_as_root_runs_as_root(
    accounts: dict[str, str], command: tuple[str, ...], tmp_path: Path
) -> None:
    assert check_options({"ControlGroup": "/shop"}, tmp_path, command, accounts) == []


@pytest.mark.parametrize("command", [("/bin/shop", "-w"), ("/usr/bin/sudo", "/srv/shop/own")])
def test_words_of_a_process_run_under_its_account(command: tuple[str, ...], tmp_path: Path) -> None:
    """The account can write `sudo` into the command line of its process."""
    pid = str(os.getpid())
    accounts = {pid: "33:34", "13": "35:36"}
    printed = {"ControlGroup": "/shop"}
    options = check_options(printed, tmp_path, command, accounts, AUTOTUNE_PID=pid)
    assert options == ["--property=User=33", "--property=Group=34"]


def test_words_of_a_process_that_has_ended_are_not_run(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        check_options({"ControlGroup": "/shop"}, tmp_path, AUTOTUNE_PID="4194305")
