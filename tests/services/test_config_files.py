"""Paths of a host's configuration: links followed, patterns expanded as the host would."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from autotune.services.config_files import LARGEST, Tree, Unreadable, gather, unpacked
from autotune.services.nginx import syntax
from autotune.services.nginx.adoption import MAIN, read

TREE = Tree(
    {"/etc/n/a.conf": b"", "/etc/n/b.conf": b"", "/etc/n/.c.conf": b"", "/srv/x/d.conf": b""},
    {"/etc/n/on": "../../srv/x", "/etc/n/z.conf": "a.conf", "/etc/n/loop": "loop"},
)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("/etc/n/*.conf", ("/etc/n/a.conf", "/etc/n/b.conf")),  # z is a again
        ("/etc/n/on/*", ("/srv/x/d.conf",)),
        ("/etc/*/b.conf", ("/etc/n/b.conf",)),
        ("/etc/n/../n/a.conf", ("/etc/n/a.conf",)),
        ("/etc/n/loop/x", ()),
        ("/etc/n", ()),
    ],
)
def test_patterns(pattern: str, found: tuple[str, ...]) -> None:
    assert TREE.matching(pattern) == found


def test_an_archive() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        file, link = tarfile.TarInfo("etc/a"), tarfile.TarInfo("etc/b")
        file.size, link.type, link.linkname = 2, tarfile.SYMTYPE, "a"
        tar.addfile(file, io.BytesIO(b"hi"))
        tar.addfile(link)
    assert unpacked(packed.getvalue()) == Tree(
        {"/etc/a": b"hi"}, {"/etc/b": "a"}, {"/etc/a": 0o644}
    )


def test_files_that_include_themselves_or_cannot_be_read() -> None:
    tree = Tree({MAIN: b"include nginx.conf; include /srv/x.conf; include bad;\n",
                 "/etc/nginx/bad": b"\xff"})  # fmt: skip
    config = read(tree)
    assert set(config.unread) == {"/srv/x.conf", "/etc/nginx/bad"}
    assert gather(Tree(), "/none", lambda _: (), lambda _: None).unread == {
        "/none": "it does not exist"
    }


def test_files_that_include_their_own_directory_do_not_multiply_without_end() -> None:
    text = b"include conf.d/*;\n"
    tree = Tree({MAIN: text, "/etc/nginx/conf.d/a": text, "/etc/nginx/conf.d/b": text})
    config = read(tree)
    assert len(config.directives) < 10_000
    assert "the limit of 1000 included files" in config.unread["/etc/nginx/conf.d/a"]


def test_braces_of_variables_are_letters_however_many() -> None:
    word = "${" * 32_768  # each was looked at to the end of the file: 43 s
    (directive,) = syntax.read(f"set ${{a}}b${{c {word};")
    assert [argument.text for argument in directive.arguments] == ["${a}b${c", word]


def test_blocks_within_each_other_have_an_end() -> None:
    assert len([*syntax.read("a {" * 100 + "}" * 100)]) == 100
    with pytest.raises(Unreadable, match="line 1: more than 100 nested blocks"):
        list(syntax.read("a {" * 32_768))


def test_an_archive_that_is_larger_than_configurations_are_is_refused() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("etc/nginx/nginx.conf")
        member.size = LARGEST + 1
        with Path("/dev/zero").open("rb") as zeros:
            tar.addfile(member, zeros)
    assert len(packed.getvalue()) < 100_000
    with pytest.raises(tarfile.TarError, match="64 MB"):
        unpacked(packed.getvalue())


SHARED = (
    "/srv/app/main is a link to /etc/shadow. It is not followed, because accounts other than root "
    "can write to /srv/app"
)
ROOTS = dict.fromkeys(("/", "/etc", "/etc/n", "/srv"), True)


@pytest.mark.parametrize(
    ("links", "real", "why"),
    [
        ({"/etc/n/main": "/srv/git/main"}, "/srv/git/main", "it does not exist"),
        ({"/etc/n": "/srv/git"}, "/srv/git/main", "it does not exist"),
        ({"/etc/n/main": "..data/main", "/etc/n/..data": "..2026"}, "/etc/n/..2026/main",
         "/etc/n/..data is a link to /etc/n/..2026/main, which is missing or not a small text file"),
        ({"/etc/n/main": "/srv/app/main", "/srv/app/main": "/etc/shadow"}, "/srv/app/main",
         SHARED),
    ],
    ids=["a checkout", "the directory", "dangling", "a link of another account"],
)  # fmt: skip
def test_links_are_followed_where_root_alone_can_change_them(
    links: dict[str, str], real: str, why: str
) -> None:
    tree = Tree({"/srv/git/main": b"", "/etc/shadow": b"root:x"}, links, directories=ROOTS)
    assert tree.real("/etc/n/main") == real
    if real not in tree.files:
        assert tree.missing("/etc/n/main") == why
        assert tree.unfollowed("/etc/n/main") == tree.unfollowed("/etc/n/m*") == ("/etc/n/main",)
        assert gather(tree, "/etc/n/main", lambda _: ()).unread == {"/etc/n/main": why}


def test_a_directory_that_is_a_link_to_nothing_is_named() -> None:
    tree = Tree({MAIN: b"include conf.d/*.conf;\n"}, {"/etc/nginx/conf.d": "/srv/gone"})
    assert read(tree).unread == {
        "/etc/nginx/conf.d": "it is a link to /srv/gone, which is missing or not a small text file"
    }


def test_archives_tell_who_can_write_to_directories() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, owner, mode in (("etc", 0, 0o755), ("srv", 1000, 0o755), ("tmp", 0, 0o1777)):
            member = tarfile.TarInfo(f"./{name}")
            member.type, member.uid, member.mode = tarfile.DIRTYPE, owner, mode
            tar.addfile(member)
    assert unpacked(packed.getvalue()).directories == {"/etc": True, "/srv": False, "/tmp": False}
