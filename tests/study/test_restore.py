"""`autotune restore` of a killed study: load hosts too, and one failing host stops no other."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.deploy.backup import BackupStore, HostBackup, encode_backup
from autotune.deploy.host_commands import STATE_DIRECTORY
from autotune.deploy.host_state import FileState, HostState
from autotune.errors import AutotuneError
from autotune.study import journal, ownership, restore
from autotune.study.study_store import StudyStore
from autotune.target.beds import BEDS_DIRECTORY
from autotune.target.read_target import TargetFile
from autotune.transports.base import HostUnreachable, Transport
from autotune.transports.local import LocalTransport
from tests.deploy.doubles import Here

TARGET = """\
name: lab
slo: {p99: 50ms, errors: 0.1%}
hosts:
  load1:  {address: 198.18.0.1}
  web1:   {address: 198.18.0.3}
  cache1: {address: 198.18.0.4}
tiers:
  web:   {hosts: web1, service: nginx+php-fpm, app: reference, uses: [cache]}
  cache: {hosts: cache1, service: memcached}
load: {hosts: load1, path: /kv.php}
"""
HOSTS = ("load1", "web1", "cache1")
FOUND, TUNED = b"as found\n", b"as tuned\n"


class Living(Here):
    """A host with a name and a place of its own."""

    def __init__(self, name: str, place: Path) -> None:
        super().__init__(place)
        self.name = name

    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        return super().get(path.replace(STATE_DIRECTORY, str(self.place / "autotune")))


class Gone(LocalTransport):
    """A host that does not answer."""

    def run(self, *_: object, **__: object) -> object:  # type: ignore[override]
        raise HostUnreachable(f"{self.name} does not answer")

    def get(self, *_: object, **__: object) -> bytes | None:  # type: ignore[override]
        raise HostUnreachable(f"{self.name} does not answer")


class Killed:
    """A study that was killed after it had changed one file on every host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.target = directory / "lab.yaml"
        self.target.write_text(TARGET)
        self.study = directory / "studies" / "lab"
        self.study.mkdir(parents=True)
        with closing(StudyStore(self.study)) as store:
            store.record_study_start("lab", TARGET, source=str(self.target), facts={})
        self.transports: dict[str, Transport] = {}
        for name in HOSTS:
            place = directory / name
            place.mkdir()
            self.conf(name).write_bytes(TUNED)
            self.transports[name] = Living(name, place)
            BackupStore(self.study).write(self.backup(name))

    def conf(self, host: str) -> Path:
        return self.directory / host / "nginx.conf"

    def backup(self, host: str) -> HostBackup:
        owner = f"{os.getuid()}:{os.getgid()}"
        state = FileState(FOUND, 0o644, owner, modified="5.000000001")
        conf = str(self.conf(host))
        return HostBackup(
            host, "lab", HostState({conf: state}), last_written={conf: (FileState(TUNED).digest,)}
        )

    def autotune_restore(self, what: str) -> tuple[int, str]:
        studies = str(self.study.parent)
        result = CliRunner().invoke(app, ["restore", what, "--studies", studies])
        if result.exception and isinstance(result.exception, AutotuneError):
            return result.exception.exit_code, result.exception.message
        return result.exit_code, result.output

    @property
    def restored(self) -> set[str]:
        return {host for host in HOSTS if self.conf(host).read_bytes() == FOUND}


def seal(killed: Killed) -> None:
    """As if the study had begun with the target that it has now."""
    target = (killed.study / "target.yaml").read_bytes()
    first = next(journal.read_records(killed.study / "events.jsonl"))
    ownership.seal_study(killed.study, target, first)


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killed:
    study = Killed(tmp_path)
    monkeypatch.setattr(restore, "create_transports", lambda file: dict(study.transports))
    return study


def what(killed: Killed) -> Mapping[str, str]:
    return {"study": "lab", "target": str(killed.target)}


@pytest.mark.parametrize("named", ["study", "target"])
def test_the_load_host_is_restored_as_well(killed: Killed, named: str) -> None:
    code, output = killed.autotune_restore(what(killed)[named])
    assert code == 0, output
    assert killed.restored == set(HOSTS)
    assert "lab: load1: restored 1 file," in output
    assert BackupStore(killed.study).list_hosts() == ()


@pytest.mark.parametrize("named", ["study", "target"])
@pytest.mark.parametrize("host", ["load1", "web1"])
def test_a_host_that_is_gone_stops_no_other(killed: Killed, named: str, host: str) -> None:
    killed.transports[host] = Gone(host)
    code, output = killed.autotune_restore(what(killed)[named])
    assert code != 0
    assert output.count(f"{host} does not answer") == 1
    assert killed.restored == set(HOSTS) - {host}
    assert BackupStore(killed.study).list_hosts() == (host,)


def test_a_study_with_another_name_than_its_target_is_restored_with_it(killed: Killed) -> None:
    """As after `run --name`, or a sweep of a file of its own."""
    killed.study = killed.study.rename(killed.study.with_name("blackfriday"))
    (killed.study.parent / "notes.txt").write_text("not a study\n")
    code, output = killed.autotune_restore(str(killed.target))
    assert code == 0, output
    assert killed.restored == set(HOSTS)
    assert "blackfriday: load1: restored 1 file," in output


def test_a_target_with_a_single_tier_is_restored(killed: Killed) -> None:
    target = TARGET.replace("  cache: {hosts: cache1, service: memcached}\n", "").replace(
        ", service: nginx+php-fpm, app: reference, uses: [cache]", ", service: nginx"
    )
    (killed.study / "target.yaml").write_text(target)
    BackupStore(killed.study).remove("cache1")
    seal(killed)
    code, output = killed.autotune_restore("lab")
    assert code == 0, output
    assert killed.restored == {"load1", "web1"}


def test_a_host_that_the_target_has_lost_stops_no_other(killed: Killed) -> None:
    BackupStore(killed.study).write(
        HostBackup("web9", "lab", HostState(sysctls={"net.core.somaxconn": "1"}))
    )
    code, output = killed.autotune_restore("lab")
    assert code != 0
    assert "web9 was changed" in output
    assert killed.restored == set(HOSTS)


def test_a_damaged_copy_of_one_host_stops_no_other(killed: Killed) -> None:
    BackupStore(killed.study).path_for("web1").write_bytes(b"{")
    code, output = killed.autotune_restore("lab")
    assert code != 0
    assert "web1.json is damaged, or was not written by this account" in output
    assert killed.restored == set(HOSTS) - {"web1"}


def test_a_copy_of_one_host_that_cannot_be_read_stops_no_other(killed: Killed) -> None:
    """As on a disk with bad blocks."""
    copy = BackupStore(killed.study).path_for("web1")
    copy.unlink()
    copy.mkdir()
    code, output = killed.autotune_restore("lab")
    assert code != 0
    assert f"{copy} cannot be read: Is a directory" in output
    assert killed.restored == set(HOSTS) - {"web1"}


def test_a_full_disk_does_not_keep_hosts_from_being_restored(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    code, output = killed.autotune_restore(str(killed.target))
    assert code == 0, output
    assert killed.restored == set(HOSTS)
    assert [path.name for path in killed.study.parent.iterdir()] == ["lab"]


def test_a_study_on_a_bad_disk_does_not_keep_hosts_from_their_own_copies(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> list[object]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(killed.study))

    monkeypatch.setattr(restore, "_list_changed_beds", fail)
    lines = ["web1: restored 1 file"]
    monkeypatch.setattr(restore, "_restore_bed", lambda *_, **__: lines)
    code, output = killed.autotune_restore(str(killed.target))
    assert code != 0
    assert f"{killed.study}: Input/output error" in output
    assert lines[0] in output


def test_studies_that_cannot_be_listed_do_not_keep_hosts_from_being_restored(
    killed: Killed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> tuple[str, ...]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "studies")

    monkeypatch.setattr("autotune.foreign_files.list_names", refuse)
    monkeypatch.setattr(restore, "_restore_bed", lambda *_, **__: ["web1: restored 1 file"])
    code, output = killed.autotune_restore(str(killed.target))
    assert code != 0
    assert output == "web1: restored 1 file\nstudies: Permission denied"


def test_every_failure_is_named(killed: Killed) -> None:
    for host in ("load1", "cache1"):
        killed.transports[host] = Gone(host)
    code, output = killed.autotune_restore("lab")
    assert code != 0
    assert "load1 does not answer" in output
    assert "cache1 does not answer" in output
    assert "web1: restored 1 file," in output


def test_a_host_is_named_though_its_name_ends_another_s(killed: Killed) -> None:
    """``web1`` is what the study restores, and ``b1`` what its own copy does."""
    for path in (killed.target, killed.study / "target.yaml"):
        path.write_text(re.sub(r"\bcache1\b", "b1", path.read_text()))
    seal(killed)
    BackupStore(killed.study).path_for("cache1").unlink()
    own = Living("b1", killed.directory / "cache1")
    killed.transports["b1"] = own
    (own.place / "autotune").mkdir()
    (own.place / "autotune" / "originals.json").write_bytes(encode_backup(killed.backup("cache1")))
    code, output = killed.autotune_restore(str(killed.target))
    assert code == 0, output
    assert killed.restored == set(HOSTS)
    assert "\nlab: web1: restored 1 file," in output
    assert "\nb1: restored 1 file," in output


def test_a_damaged_study_does_not_keep_hosts_from_their_own_copies(killed: Killed) -> None:
    for name in HOSTS:
        home = killed.directory / name / "autotune"
        home.mkdir()
        (home / "originals.json").write_bytes(encode_backup(killed.backup(name)))
    (killed.study / "target.yaml").write_text("")
    seal(killed)
    code, output = killed.autotune_restore(str(killed.target))
    assert code != 0  # the study stays as it is, and is named
    assert "target.yaml" in output
    assert killed.restored == set(HOSTS)


def test_a_study_that_has_lost_its_target_does_not_keep_hosts_from_their_own_copies(
    killed: Killed,
) -> None:
    for name in HOSTS:
        home = killed.directory / name / "autotune"
        home.mkdir()
        (home / "originals.json").write_bytes(encode_backup(killed.backup(name)))
    (killed.study / "target.yaml").unlink()
    code, output = killed.autotune_restore(str(killed.target))
    assert code != 0
    assert "target.yaml" in output
    assert killed.restored == set(HOSTS)


@pytest.mark.parametrize("named", ["study", "target"])
def test_targets_of_another_version_still_say_how_hosts_are_reached(
    killed: Killed, named: str
) -> None:
    text = killed.target.read_text()
    of_later = text.replace("service: memcached", "service: {name: memcached, since: 2}")
    assert of_later != text
    for path in (killed.target, killed.study / "target.yaml"):
        path.write_text(f"{of_later}schema: 2\n")
    seal(killed)
    code, output = killed.autotune_restore(what(killed)[named])
    assert code == 0, output
    assert killed.restored == set(HOSTS)


@pytest.mark.parametrize("named", ["study", "target"])
def test_a_damaged_journal_does_not_keep_originals_from_being_restored(
    killed: Killed, named: str
) -> None:
    with (killed.study / "events.jsonl").open("ab") as events:
        events.write(b'{"event":"measured","trial":0}\nno record\n')
    code, output = killed.autotune_restore(what(killed)[named])
    assert code == 0, output
    assert killed.restored == set(HOSTS)


FOREIGN_TEXT = "is read-only: another account or machine started it"
# How somebody else's study gets there → what its refusal says.
FOREIGN: Mapping[str, tuple[Callable[[Killed], object], str]] = {
    "without a seal": (lambda k: (k.study / "seal").unlink(), FOREIGN_TEXT),
    "sealed elsewhere": (
        lambda k: (k.study / "seal").write_text("0" * 64), FOREIGN_TEXT),
    "with another target": (
        lambda k: (k.study / "target.yaml").write_text(f"{TARGET}# and more\n"),
        "or its target was changed"),
    "writable for others": (lambda k: k.study.chmod(0o777), "can be changed by other accounts"),
}  # fmt: skip


def unsealed_copy(killed: Killed, host: str) -> None:
    """A record of originals as a stranger writes it: of files that no service has."""
    file = killed.directory / host / "authorized_keys"
    state = HostState({str(file): FileState(b"theirs\n", 0o600, "0:0", modified="5.0")})
    BackupStore(killed.study).path_for(host).write_bytes(
        encode_backup(HostBackup(host, "lab", state))
    )


@pytest.mark.parametrize("named", ["study", "target"])
@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_study_of_somebody_else_restores_nothing(
    killed: Killed, named: str, foreign: str
) -> None:
    make, why = FOREIGN[foreign]
    assert ownership.is_own_study(killed.study)
    make(killed)
    assert not ownership.is_own_study(killed.study)
    code, output = killed.autotune_restore(what(killed)[named])
    assert code != 0
    assert why in output
    assert killed.restored == set()


@pytest.mark.parametrize("named", ["study", "target"])
def test_a_copy_that_this_account_did_not_write_restores_nothing(
    killed: Killed, named: str
) -> None:
    unsealed_copy(killed, "web1")
    code, output = killed.autotune_restore(what(killed)[named])
    assert code != 0
    assert "web1.json is damaged, or was not written by this account" in output
    assert not (killed.directory / "web1" / "authorized_keys").exists()
    assert killed.restored == set(HOSTS) - {"web1"}


def test_the_copy_of_another_host_restores_nothing(killed: Killed) -> None:
    store = BackupStore(killed.study)
    store.path_for("web1").write_bytes(store.path_for("cache1").read_bytes())
    code, _ = killed.autotune_restore("lab")
    assert code != 0
    assert killed.restored == set(HOSTS) - {"web1"}


def test_hosts_have_their_own_copies_if_the_study_is_somebody_elses(killed: Killed) -> None:
    for name in HOSTS:
        home = killed.directory / name / "autotune"
        home.mkdir()
        (home / "originals.json").write_bytes(encode_backup(killed.backup(name)))
    (killed.study / "seal").unlink()
    code, output = killed.autotune_restore(str(killed.target))
    assert code != 0  # the study is named
    assert "is read-only: another account or machine started it" in output
    assert killed.restored == set(HOSTS)


def test_a_study_that_was_moved_and_renamed_is_still_ones_own(killed: Killed) -> None:
    killed.study = killed.study.rename(killed.study.with_name("lab-old"))
    code, output = killed.autotune_restore("lab-old")
    assert code == 0, output
    assert killed.restored == set(HOSTS)


def move_to_bed(killed: Killed, bed: str, *hosts: str) -> None:
    """As if the study had changed these hosts of a test bed."""
    directory = killed.study / BEDS_DIRECTORY / bed
    for host in hosts:
        BackupStore(directory).write(killed.backup(host))
        BackupStore(killed.study).remove(host)


def declare_bed(address: str) -> str:
    return f"beds: {{a: {{hosts: {{web1: {{address: {address}}}}}}}}}\n"


def test_a_bed_that_the_target_does_not_list_stops_no_other(killed: Killed) -> None:
    """A worker joined a shared study with a bed of its own target."""
    move_to_bed(killed, "a", "load1", "web1")
    move_to_bed(killed, "c", "cache1")
    (killed.study / "target.yaml").write_text(TARGET + declare_bed("198.18.0.3"))
    seal(killed)
    code, output = killed.autotune_restore("lab")
    assert code != 0
    assert "bed c is not in the target of the study" in output
    assert killed.restored == {"load1", "web1"}


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_worker_restores_the_hosts_of_its_own_target(
    killed: Killed, monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    """Elsewhere, the study uses other hosts with the same names."""
    move_to_bed(killed, "a", *HOSTS)
    (killed.study / "target.yaml").write_text(TARGET + declare_bed("198.18.0.3"))
    seal(killed)
    ownership.seal_bed(killed.study, "a", (TARGET + declare_bed("198.18.9.3")).encode())
    if is_changed:
        path = killed.study / BEDS_DIRECTORY / "a" / "target.yaml"
        path.write_text(path.read_text().replace("198.18.9.3", "198.18.9.4"))
    addresses: list[str] = []

    def connect(file: TargetFile) -> dict[str, Transport]:
        addresses.append(file.target.hosts["web1"].address)
        return dict(killed.transports)

    monkeypatch.setattr(restore, "create_transports", connect)
    code, output = killed.autotune_restore("lab")
    assert (code != 0) is is_changed, output
    assert addresses == ([] if is_changed else ["198.18.9.3"])
    assert killed.restored == (set() if is_changed else set(HOSTS))
