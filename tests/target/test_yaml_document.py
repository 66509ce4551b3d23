from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import TargetError
from autotune.foreign_files import MAX_TARGET_BYTES
from autotune.target.messages import find_nearest_name
from autotune.target.yaml_document import YamlDocument, load_yaml

TEXT = """\
name: shop
slo: {p99: 50ms}
tiers:
  web:
    hosts:
      - web1
      - web2
    service: nginx
"""


@pytest.fixture
def document(tmp_path: Path) -> YamlDocument:
    path = tmp_path / "shop.yaml"
    path.write_text(TEXT)
    return load_yaml(path)


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ((), (1, 1)),
        (("name",), (1, 1)),
        (("slo",), (2, 1)),
        (("slo", "p99"), (2, 7)),
        (["tiers", "web", "hosts", 1], (7, 9)),
        # What is not there is where it would be: at its nearest parent.
        (("slo", "errors"), (2, 1)),
        (("tiers", "web", "hosts", 2), (5, 5)),
        (("tiers", "web", "service", 0), (8, 5)),
        (("budget", "time"), (1, 1)),
    ],
)
def test_position(
    document: YamlDocument, location: list[str | int], place: tuple[int, int]
) -> None:
    assert document.find_position(location) == place


def test_error_names_file_line_and_column(document: YamlDocument) -> None:
    error = document.build_error(("slo", "p99"), "too strict", hint="be kind")
    assert isinstance(error, TargetError)
    assert error.message == f"{document.path}:2:7: too strict"
    assert error.hint == "be kind"


@pytest.mark.parametrize(
    ("known", "hint"),
    [
        (["parameters", "tiers", "hosts"], "did you mean 'tiers'?"),
        (["b", "a"], "expected one of: a, b"),
        ([], "none exist"),
    ],
)
def test_unknown_name_has_an_alternative(
    document: YamlDocument, known: list[str], hint: str
) -> None:
    error = document.unknown_name_error(("tires",), "key", known)
    assert error.message.endswith(": unknown key 'tires'")
    assert error.hint == hint


@pytest.mark.parametrize(
    ("name", "meant"),
    [("forward_to", "forwards_to"), ("adress", "address"), ("colour", None), ("", None)],
)
def test_nearest(name: str, meant: str | None) -> None:
    assert find_nearest_name(name, ["address", "forwards_to", "hosts"]) == meant


def write(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "target.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read_refusal(path: Path) -> str:
    with pytest.raises(TargetError) as caught:
        load_yaml(path)
    return caught.value.message.removeprefix(f"{path}:")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("0x1F", 31), ("0o17", 15), ("017", 17), ("1_000", 1000),
        ("1.5", 1.5), ("1e3", 1000.0), (".inf", math.inf), ("-.INF", -math.inf),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        # Words of YAML 1.1 only.
        ("on", "on"), ("no", "no"), ("yes", "yes"), ("12:30", "12:30"),
        ("2024-01-31", "2024-01-31"), ("50ms", "50ms"), ("'12'", "12"), ('"a b"', "a b"),
        ("[a, 1]", ["a", 1]), ("{b: {c: 2}}", {"b": {"c": 2}}),
    ],
)  # fmt: skip
def test_values(tmp_path: Path, text: str, value: object) -> None:
    root = load_yaml(write(tmp_path, f"a: {text}\n")).root
    assert root == {"a": value}
    assert type(root["a"]) is type(value)


def test_not_a_number(tmp_path: Path) -> None:
    assert math.isnan(load_yaml(write(tmp_path, "a: .nan")).root["a"])


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x {b: 1, d: 2}\nc: {<<: *x, b: 3}", {"a": {"b": 1, "d": 2}, "c": {"b": 3, "d": 2}}),
        ("a: {<<: [{b: 1}, {b: 2, c: 3}]}", {"a": {"b": 1, "c": 3}}),
        ("1: one\ntrue: two", {"1": "one", "true": "two"}),
        ("a: &x {b: 1}\nc: &x {b: 2}\nd: *x", {"a": {"b": 1}, "c": {"b": 2}, "d": {"b": 2}}),
        ("%YAML 1.2\n---\na: 1", {"a": 1}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ],
)
def test_mappings(tmp_path: Path, text: str, root: dict[str, Any]) -> None:
    assert load_yaml(write(tmp_path, text)).root == root


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\r\r\n"])
def test_positions_are_found_with_any_line_end(tmp_path: Path, line_end: str) -> None:
    document = load_yaml(write(tmp_path, line_end.join(("a: 1", "b: [2]", ""))))
    assert document.find_text_after(("b",)) == "b: [2]"


def test_merged_keys_stand_where_they_are_written(tmp_path: Path) -> None:
    document = load_yaml(write(tmp_path, "a: &x {b: 1}\nc:\n  <<: *x\n"))
    assert document.find_position(("c", "b")) == (1, 8)
    assert document.find_position(("c",)) == (2, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1:1: a target must be a mapping of settings, not an empty file"),
        (b"name: caf\xe9\n", "1:10: not UTF-8 text"),
        (b"a: 1\n\x7fELF\x02\x01\x01\xff", "2:8: not UTF-8 text"),
        ("name: shop\n".encode("utf-16"), "1:1: not UTF-8 text"),
        (b"a: 1\nb: x\x00y\n", "2:5: invalid character (code 0)"),
        (b"a: " + b"9" * 5000, "1:4: '" + "9" * 39 + "…' is not a usable number"),
        (b"a: !!int x", "1:4: 'x' is not a usable number"),
        (b"a: !!binary aGk=", "1:4: unsupported tag 'tag:yaml.org,2002:binary'"),
        (b"? [a, b]\n: 1", "1:3: a key must be a word, not a list or a mapping"),
        (b"{a: 1, a: 2}", "1:8: duplicate key 'a' on line 1"),
        (b"1: a\n'1': b", "2:1: duplicate key '1' on lines 1 and 2"),
        (b"\xef\xbb\xbfa: \xc3\xa9\xc3\xa9\xff", "1:6: not UTF-8 text"),
        (b"%YAML 1.3\n---\na: 1", "1:1: not valid YAML: a version other than 1.2"),
        (b"# x\n%YAML 1.1\n---\na: 010", "2:1: not valid YAML: a version other than 1.2"),
        (b'a: b\nc: "\\UFFFFFFFF"', "2:5: not valid YAML: an escape that is not a character"),
        (b'a: "\\U00110000"', "1:5: not valid YAML: an escape that is not a character"),
        (b"<<: 3", "1:5: `<<` takes a mapping, or a list of mappings"),
        (b"a: " + b"[" * 30 + b"]" * 30, "1:24: nested too deeply for a target"),
        (b"[" * 20_000, "1:1: nested too deeply for a target"),
        (b"a: &a {b: *a}", "1:4: nested too deeply for a target"),
        (b"a: &a {<<: {<<: *a}}", "1:1: nested too deeply for a target"),
        (b"a" * (MAX_TARGET_BYTES + 1), " is larger than 200,000 bytes"),
    ],
    ids=range(22),
)
def test_refused(tmp_path: Path, content: bytes, message: str) -> None:
    assert read_refusal(write(tmp_path, content)) == message


def test_aliases_cannot_multiply_without_end(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "more than 20000 values" in read_refusal(write(tmp_path, "\n".join(lines)))


def test_merges_cannot_multiply_without_end(tmp_path: Path) -> None:
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    path = write(tmp_path, "\n".join(lines))
    assert path.stat().st_size < 1000
    assert read_refusal(path).endswith("too large for a target: more than 1000 merges (`<<`)")


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TargetError) as caught:
        load_yaml(tmp_path / "none.yaml")
    assert caught.value.message.endswith("none.yaml: no such file or directory")
    assert "autotune init" in str(caught.value.hint)


def test_directory(tmp_path: Path) -> None:
    assert read_refusal(tmp_path) == " is a directory"


@pytest.mark.parametrize(
    ("path", "message"),
    [("/proc/self/mem", "input/output error"),
     ("/dev/zero", "is a device, not a file")],
)  # fmt: skip
def test_what_no_file_mode_protects_from(path: str, message: str) -> None:
    assert read_refusal(Path(path)) == f" {message}"


@given(st.text(st.sampled_from("abc:-[]{}&*!|>'\"%@`#,?~<= \n\t01.\x00é"), max_size=40))
def test_whatever_is_written_reads_or_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    try:
        document = load_yaml(path)
    except TargetError as error:
        line, column = error.message.removeprefix(f"{path}:").split(":")[:2]
        assert 1 <= int(line) <= text.count("\n") + 1
        assert int(column) >= 1
    else:
        assert isinstance(document.root, dict)


def test_nothing_is_shown_of_a_line_too_long_to_look_for_secrets_in(tmp_path: Path) -> None:
    path = tmp_path / "target.yaml"
    for colons, excerpt in ((100, True), (65_536, False)):
        path.write_text(f"name: {colons * ':'}x: 1\n")
        with pytest.raises(TargetError) as caught:
            load_yaml(path)
        assert bool(caught.value.excerpt) is excerpt
