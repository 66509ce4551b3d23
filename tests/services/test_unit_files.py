"""Which file of a unit says what is started, as systemd reads a unit and its drop-ins."""

from __future__ import annotations

import pytest

from autotune.services.config_files import FileTree
from autotune.services.unit_files import find_exec_start, list_unit_files, parse_directives

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
