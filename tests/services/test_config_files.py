"""Paths of a host's configuration: links followed, patterns expanded as the host would."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from autotune.services.config_files import (
    MAX_ARCHIVE_BYTES,
    ConfigSyntaxError,
    FileTree,
    read_config,
    unpack_tree,
)
from autotune.services.nginx import syntax
from autotune.services.nginx.adoption import MAIN_FILE, read_host_config

TREE = FileTree(
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
    assert TREE.glob(pattern) == found


def test_an_archive() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        file, link = tarfile.TarInfo("etc/a"), tarfile.TarInfo("etc/b")
        file.size, link.type, link.linkname = 2, tarfile.SYMTYPE, "a"
        tar.addfile(file, io.BytesIO(b"hi"))
        tar.addfile(link)
    assert unpack_tree(packed.getvalue()) == FileTree(
        {"/etc/a": b"hi"}, {"/etc/b": "a"}, {"/etc/a": 0o644}
    )


def test_an_archive_with_several_names_of_one_file() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, target in (
            ("./etc/n/available", tarfile.REGTYPE, ""),
            ("./etc/n/enabled", tarfile.LNKTYPE, "./etc/n/available"),
            ("./etc/n/a", tarfile.SYMTYPE, "enabled"),
            ("./etc/n/b", tarfile.LNKTYPE, "./etc/n/a"),
            ("./etc/n/c", tarfile.LNKTYPE, "./etc/n/gone"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, target, 0o640
            member.size = 3 if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(b"x 1"))
    tree = unpack_tree(packed.getvalue())
    assert tree.files == {"/etc/n/available": b"x 1", "/etc/n/enabled": b"x 1"}
    assert tree.modes == {"/etc/n/available": 0o640, "/etc/n/enabled": 0o640}
    assert tree.links == {"/etc/n/a": "enabled", "/etc/n/b": "enabled"}
    assert tree.unread == {"/etc/n/c": "it is a hard link to /etc/n/gone, which was not read"}


def test_files_that_include_themselves_or_cannot_be_read() -> None:
    tree = FileTree({MAIN_FILE: b"include nginx.conf; include /srv/x.conf; include bad;\n",
                 "/etc/nginx/bad": b"\xff"})  # fmt: skip
    config = read_host_config(tree)
    assert set(config.unread_files) == {"/srv/x.conf", "/etc/nginx/bad", MAIN_FILE}
    assert read_config(FileTree(), "/none", lambda _: (), lambda _: None).unread_files == {
        "/none": "it does not exist"
    }


def test_files_that_include_their_own_directory_do_not_multiply_without_end() -> None:
    text = b"include conf.d/*;\n"
    tree = FileTree({MAIN_FILE: text, "/etc/nginx/conf.d/a": text, "/etc/nginx/conf.d/b": text})
    config = read_host_config(tree)
    assert len(config.directives) < 10_000
    assert "the limit of 1000 included files" in config.unread_files["/etc/nginx/conf.d/a"]


def test_braces_of_variables_are_letters_however_many() -> None:
    word = "${" * 32_768  # each was looked at to the end of the file: 43 s
    (directive,) = syntax.parse_directives(f"set ${{a}}b${{c {word};")
    assert [argument.text for argument in directive.arguments] == ["${a}b${c", word]


def test_blocks_within_each_other_have_an_end() -> None:
    assert len([*syntax.parse_directives("a {" * 100 + "}" * 100)]) == 100
    with pytest.raises(ConfigSyntaxError, match="line 1: more than 100 nested blocks"):
        list(syntax.parse_directives("a {" * 32_768))


def test_an_archive_that_is_larger_than_configurations_are_is_refused() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("etc/nginx/nginx.conf")
        member.size = MAX_ARCHIVE_BYTES + 1
        with Path("/dev/zero").open("rb") as zeros:
            tar.addfile(member, zeros)
    assert len(packed.getvalue()) < 100_000
    with pytest.raises(ValueError, match="64 MB"):
        unpack_tree(packed.getvalue())


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 40)}


@pytest.mark.parametrize("headers", [SPARSE, {"size": "-1024"}])
def test_an_archive_of_a_member_without_an_end_is_refused(headers: dict[str, str]) -> None:
    packed, content = io.BytesIO(), b"0\n".ljust(512, b"\0")
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("etc/nginx/nginx.conf")
        member.size, member.pax_headers = len(content), headers
        tar.addfile(member, io.BytesIO(content))
    # Later versions of Python reject a negative size.
    with pytest.raises(ValueError, match=r"is sparse or has an invalid size|invalid header"):
        unpack_tree(packed.getvalue())


def test_an_archive_with_an_invalid_header_between_members_is_refused() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("etc/nginx/nginx.conf", "etc/nginx/mime.types"):
            member = tarfile.TarInfo(name)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"0\n"))
    archive = bytearray(packed.getvalue())
    assert len(unpack_tree(bytes(archive)).files) == 2
    archive[1024:1030] = b"broken"
    with pytest.raises(ValueError, match="invalid header at byte 1024"):
        unpack_tree(bytes(archive))


@pytest.mark.parametrize(
    "archive", [b"", b"\x1f\x8b", gzip.compress(b"x" * 999, mtime=0)[:-9], b"x" * 1024]
)
def test_what_is_no_archive_is_refused(archive: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_tree(archive)


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
    tree = FileTree({"/srv/git/main": b"", "/etc/shadow": b"root:x"}, links, directories=ROOTS)
    assert tree.resolve("/etc/n/main") == real
    if real not in tree.files:
        assert tree.explain_missing("/etc/n/main") == why
        assert (
            tree.find_broken_links("/etc/n/main")
            == tree.find_broken_links("/etc/n/m*")
            == ("/etc/n/main",)
        )
        assert read_config(tree, "/etc/n/main", lambda _: ()).unread_files == {"/etc/n/main": why}


def test_a_directory_that_is_a_link_to_nothing_is_named() -> None:
    tree = FileTree({MAIN_FILE: b"include conf.d/*.conf;\n"}, {"/etc/nginx/conf.d": "/srv/gone"})
    assert read_host_config(tree).unread_files == {
        "/etc/nginx/conf.d": "it is a link to /srv/gone, which is missing or not a small text file"
    }


def test_archives_tell_who_can_write_to_directories() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, owner, mode in (("etc", 0, 0o755), ("srv", 1000, 0o755), ("tmp", 0, 0o1777)):
            member = tarfile.TarInfo(f"./{name}")
            member.type, member.uid, member.mode = tarfile.DIRTYPE, owner, mode
            tar.addfile(member)
    assert unpack_tree(packed.getvalue()).directories == {
        "/etc": True,
        "/srv": False,
        "/tmp": False,
    }
