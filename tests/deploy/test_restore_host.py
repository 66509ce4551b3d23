"""One host restored: what others changed, what is gone, and what its software refuses by now.

The host is this machine with the real script; `systemctl` is a stand-in that keeps units in files.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.deploy import managed_hosts
from autotune.deploy.backup import (
    SYSCTL_FILE,
    BackupCheck,
    BackupStore,
    HostBackup,
    decode_backup,
    encode_backup,
)
from autotune.deploy.deployment import Deployment
from autotune.deploy.desired_state import plan_host
from autotune.deploy.host import ManagedHost
from autotune.deploy.host_commands import (
    APPLIED_BACKUP_FILE,
    BACKUP_FILE,
    SHELL_FUNCTIONS,
    STATE_DIRECTORY,
    Command,
    CommandFailed,
    run_commands,
)
from autotune.deploy.host_lock import HostLock
from autotune.deploy.host_state import FileState, HostPlan, HostState, ObservedUnit
from autotune.deploy.managed_hosts import (
    LoadHosts,
    ManagedHosts,
    restore_hosts,
    restore_orphaned,
)
from autotune.deploy.rollback import roll_back_hosts
from autotune.deploy.runtime import ApplyFailed, ConfigurationCheck, InvalidConfiguration
from autotune.deploy.stack import ServiceInstance
from autotune.deploy.stack_readiness import EntryProbe
from autotune.deploy.staging import build_backup_check
from autotune.deploy.unit_start import UnitStart
from autotune.errors import AutotuneError, LockedError
from autotune.runtimes.systemd import SERVICE_MANAGER
from autotune.services.base import Action, Endpoint, Placement, Role
from autotune.services.registry import SHIPPED
from autotune.transports.base import CommandResult, HostUnreachable
from autotune.transports.parallel_hosts import HostResults
from tests.deploy.doubles import (
    ACCOUNT,
    GROUP,
    LONG_ACCESS_LIST,
    LONG_ACCESS_TEXT,
    MASK,
    OTHERS,
    OWNER,
    Here,
    restore_host,
    set_access_list,
)

UNIT = "server.service"
SYSTEMCTL = """\
#!/bin/sh
# Units are files in UNITS, their state in them; one that is "broken" does not start, and one that
# has a file `again` beside it is started again as it is stopped, as by a batch that is late. One that
# "hangs" never ends its start.
did="$1 $2 $3"
while [ "$1" != -- ]; do shift; done
shift
for unit; do
    state=$(cat "UNITS/$unit" 2>/dev/null || echo gone)
    boot=$(cat "UNITS/$unit.boot" 2>/dev/null || echo enabled)
    case "$did" in
        -q*able*) echo "$did" | cut -d ' ' -f 2 | sed 's/$/d/' >"UNITS/$unit.boot" ;;
        "show --value -p") printf '%s\\nrunning\\n' "$state" | sed s/broken/failed/ ;;
        show*)
            loaded=loaded
            [ "$state" != gone ] || loaded=not-found
            printf 'LoadState=%s\\nActiveState=%s\\n' "$loaded" "$state"
            printf '%s\\n' SubState=running "UnitFileState=$boot" MainPID=1 NRestarts=0 Path= '' ;;
        restart*)
            [ "$boot" != masked ] || { echo "$unit is masked"; exit 1; }
            case $state in gone | broken) echo "$unit does not start"; exit 5 ;; esac
            [ "$state" != hangs ] || exec sleep 600
            echo "$unit" >>UNITS/../restarted
            echo active >"UNITS/$unit" ;;
        stop*) [ -e "UNITS/$unit.again" ] || echo inactive >"UNITS/$unit" ;;
    esac
done
"""


class Host(Here):
    def get(self, path: str, *, sudo: bool = False) -> bytes | None:
        return super().get(path.replace(STATE_DIRECTORY, str(self.place / "autotune")))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / UNIT).write_text("active\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "systemctl").write_text(SYSTEMCTL.replace("UNITS", str(tmp_path / "units")))
    (tmp_path / "bin" / "journalctl").write_text("#!/bin/sh\n")  # this machine's may be long
    for program in (tmp_path / "bin").iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name in ("conf", "more"):
        (tmp_path / name).write_text("original\n")
    return Host(tmp_path)


Locked = Callable[[str], ManagedHost]


@pytest.fixture
def locked(here: Host, tmp_path: Path) -> Iterator[Locked]:
    hosts = []

    def lock(study: str) -> ManagedHost:
        store = BackupStore(tmp_path / "studies" / study)
        host = ManagedHost("here", here, store, study, SERVICE_MANAGER)
        host.lock.lock()
        hosts.append(host)
        return host

    yield lock
    for host in hosts:
        host.lock.unlock()


def tuned(place: Path, content: bytes = b"tuned\n") -> HostState:
    files = {str(place / name): FileState(content) for name in ("conf", "more")}
    return HostState(files, {UNIT: True}, {"kernel.ostype": "Linux"})


def deploy(host: ManagedHost, desired: HostState) -> None:
    host.back_up(desired)
    plan = plan_host(desired, host.observe(desired), {}, {UNIT: Action.RESTART})
    host.stage(desired, plan)
    host.apply(desired, plan)


def deployed_and_unlocked(locked: Locked, place: Path, *, keeps: bool = False) -> ManagedHost:
    """The host after a session that kept its deployment, or that was killed."""
    host = locked("study")
    deploy(host, tuned(place))
    if keeps:
        host.commit()
    host.lock.unlock()
    return host


def overwritten(place: Path) -> dict[str, str]:
    """What was kept aside, by its name."""
    files = (place / "autotune" / "overwritten").rglob("*")
    return {path.name: path.read_text() for path in files if path.is_file()}


def test_what_others_changed_since_is_kept_aside_and_named(locked: Locked, tmp_path: Path) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "conf").write_text("repaired by hand\n")
    (line,) = restore_host(host)
    assert "restored 2 files" in line
    assert (tmp_path / "conf").read_text() == (tmp_path / "more").read_text() == "original\n"
    assert overwritten(tmp_path) == {"conf": "repaired by hand\n"}
    (note,) = host.notes
    assert str(tmp_path / "conf") in note
    assert f"{STATE_DIRECTORY}/overwritten/".replace("/var/lib", str(tmp_path)) in note


def is_open_to_others(path: Path, top: Path) -> bool:
    """Whether other accounts can read a file below ``top``."""
    directories = [parent for parent in path.parents if parent.is_relative_to(top)]
    can_enter = all(directory.stat().st_mode & 0o011 for directory in directories)
    return can_enter and bool(path.stat().st_mode & 0o044)


def test_no_other_account_reads_the_originals_on_a_host(locked: Locked, tmp_path: Path) -> None:
    host, home, names = locked("study"), tmp_path / "autotune", set[str]()
    home.chmod(0o755)  # as the labs of the same machine have it
    deploy(host, tuned(tmp_path))
    (tmp_path / "conf").write_text("repaired by hand\n")
    for work in (lambda: deploy(host, tuned(tmp_path, b"better\n")), host.commit):
        work()
        files = {path for path in home.rglob("*") if path.is_file()}
        names |= {path.name for path in files}
        open_files = {path.name for path in files if is_open_to_others(path, home)}
        assert open_files <= {"lock", "lease"}
    assert {"originals.json", "kept.json", "conf"} <= names


def test_a_copy_that_a_full_disk_cuts_short_is_removed(locked: Locked, tmp_path: Path) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "conf").write_text("repaired by hand\n")
    cp = tmp_path / "bin" / "cp"
    cp.write_text(
        "#!/bin/sh\nfor last; do :; done\n"
        'case $last in */overwritten/*) printf repaired >"$last"; exit 1 ;; esac\n'
        f'exec {shutil.which("cp")} "$@"\n'
    )
    cp.chmod(0o755)
    with pytest.raises(AutotuneError, match="differs from its backup"):
        restore_host(host)
    assert overwritten(tmp_path) == {}
    assert (tmp_path / "conf").read_text() == "repaired by hand\n"
    cp.unlink()
    restore_host(host)
    assert overwritten(tmp_path) == {"conf": "repaired by hand\n"}


def test_a_directory_to_which_others_have_added_files_is_kept_and_named(
    locked: Locked, tmp_path: Path
) -> None:
    """`systemctl edit` writes next to a drop-in whose directory autotune has created."""
    host = locked("study")
    drop_in = tmp_path / "server.service.d" / "zz-autotune.conf"
    deploy(host, HostState({str(drop_in): FileState(b"tuned\n")}, {UNIT: True}))
    (drop_in.parent / "override.conf").write_text("others\n")
    restore_host(host)
    assert [path.name for path in drop_in.parent.iterdir()] == ["override.conf"]
    assert host.notes == [f"here: {drop_in.parent} is kept, because others have added files to it"]
    assert host.read_backup_copy(BACKUP_FILE) is None


def test_what_a_killed_restore_kept_aside_is_named_by_the_next(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "conf").write_text("repaired by hand\n")
    restore_host(host)  # whoever does it is killed before it says so
    host.lock.unlock()
    lines = restore_hosts(
        tmp_path / "studies" / "study", {"here": here}, SERVICE_MANAGER, prefers_host_copies=True
    )
    assert lines == host.notes
    assert "repaired by hand\n" in Path(lines[0].split()[-1]).read_text()


def test_what_others_changed_between_deployments_is_kept_aside(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "more").write_text("repaired by hand\n")
    deploy(host, tuned(tmp_path, b"tuned otherwise\n"))
    assert overwritten(tmp_path) == {"more": "repaired by hand\n"}
    assert len(host.notes) == 1


@pytest.mark.parametrize("swapped", [0, 1, 2])
def test_what_autotune_wrote_is_known_however_far_a_killed_deployment_came(
    locked: Locked, tmp_path: Path, swapped: int
) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    deploy(host, tuned(tmp_path, b"better\n"))
    for name in ("conf", "more")[swapped:]:
        (tmp_path / name).write_text("tuned\n")  # as it was before the swap
    restore_host(host)
    assert overwritten(tmp_path) == {}
    assert host.notes == []


def test_what_is_in_place_stays_on_record_however_many_deployments_fail(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    for content in (b"second\n", b"third\n", b"fourth\n"):
        desired = tuned(tmp_path, content)
        plan = plan_host(desired, host.observe(desired), {}, {UNIT: Action.RESTART})
        with pytest.raises(AutotuneError):  # nothing was staged, so no file is replaced
            host.apply(desired, plan)
    deploy(host, tuned(tmp_path, b"last\n"))
    assert overwritten(tmp_path) == {}
    restore_host(host)
    assert overwritten(tmp_path) == {}


def test_what_the_software_leaves_is_not_taken_for_somebody_elses(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    host.back_up(tuned(tmp_path), created_files=[str(tmp_path / "dump")])
    deploy(host, tuned(tmp_path))
    (tmp_path / "dump").write_text("data\n")
    restore_host(host)
    assert not (tmp_path / "dump").exists()
    assert overwritten(tmp_path) == {}


def test_a_unit_and_a_kernel_value_that_are_gone_are_passed_over(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    (tmp_path / "units" / "other.service").write_text("active\n")
    desired = tuned(tmp_path)
    deploy(host, replace(desired, units={"other.service": True, UNIT: True}))
    keys = {**host.backup.state.sysctls, "net.ipv4.tcp_tw_recycle": "0"}
    host.backup = replace(host.backup, state=replace(host.backup.state, sysctls=keys))
    (tmp_path / "units" / "other.service").unlink()
    (tmp_path / "restarted").unlink()
    restore_host(host)
    assert (tmp_path / "conf").read_text() == "original\n"
    assert (tmp_path / "restarted").read_text() == f"{UNIT}\n"
    assert any("other.service" in note for note in host.notes)
    assert any("tcp_tw_recycle" in note for note in host.notes)
    assert not host.is_changed
    assert restore_host(host) == ()


def test_a_unit_that_does_not_start_keeps_no_other_from_being_restored(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    (tmp_path / "units" / "a.service").write_text("active\n")
    deploy(host, replace(tuned(tmp_path), units={"a.service": True, UNIT: True}))
    (tmp_path / "units" / "a.service").write_text("broken\n")
    (tmp_path / "restarted").unlink()
    with pytest.raises(AutotuneError, match=r"(?s)a\.service.*does not start"):
        restore_host(host)
    assert (tmp_path / "restarted").read_text() == f"{UNIT}\n"
    assert (tmp_path / "conf").read_text() == "original\n"
    assert host.read_backup_copy(BACKUP_FILE) is not None


def test_a_configuration_is_not_at_fault_if_a_file_cannot_be_replaced(
    locked: Locked, tmp_path: Path
) -> None:
    """As with an immutable file (`chattr +i`), or a disk that filled up after the validation."""
    host = locked("study")
    mv = tmp_path / "bin" / "mv"
    mv.write_text(
        "#!/bin/sh\ncase $* in *autotune-new*) echo Operation not permitted; exit 1 ;; esac\n"
        f'exec {shutil.which("mv")} "$@"\n'
    )
    mv.chmod(0o755)
    with pytest.raises(CommandFailed, match="here: Operation not permitted") as refused:
        deploy(host, tuned(tmp_path))
    assert not isinstance(refused.value, ApplyFailed)
    mv.unlink()
    (tmp_path / "units" / UNIT).write_text("broken\n")
    with pytest.raises(ApplyFailed, match="does not start"):
        deploy(host, tuned(tmp_path))
    (tmp_path / "units" / UNIT).write_text("active\n")
    restore_host(host)


def test_a_unit_that_is_stopped_again_counts_as_restored(locked: Locked, tmp_path: Path) -> None:
    (tmp_path / "units" / "other.service").write_text("inactive\n")
    host = locked("study")
    deploy(host, replace(tuned(tmp_path), units={UNIT: True, "other.service": True}))
    assert (tmp_path / "units" / "other.service").read_text() == "active\n"
    assert restore_host(host) == ("here: restored 2 files, 0 sysctls, 2 units",)
    assert (tmp_path / "units" / "other.service").read_text() == "inactive\n"


def test_a_unit_that_others_masked_is_told_and_passed_over(locked: Locked, tmp_path: Path) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "units" / f"{UNIT}.boot").write_text("masked\n")
    (tmp_path / "restarted").unlink()
    assert restore_host(host) != ()
    assert (tmp_path / "conf").read_text() == "original\n"
    assert not (tmp_path / "restarted").exists()
    assert host.notes == [f"here: skipped {UNIT}, which was masked after the backup"]
    assert not host.is_changed


def test_only_units_that_were_switched_by_autotune_are_switched_back(
    locked: Locked, tmp_path: Path
) -> None:
    boot = tmp_path / "units" / f"{UNIT}.boot"
    boot.write_text("disabled\n")
    (tmp_path / "units" / UNIT).write_text("inactive\n")
    host = locked("study")
    deploy(host, tuned(tmp_path))
    boot.write_text("enabled\n")  # by its administrator
    restore_host(host)
    assert boot.read_text() == "enabled\n"
    boot.write_text("disabled\n")
    deploy(host, tuned(tmp_path))
    lasting = HostState(units={UNIT: True}, enabled={UNIT: True})
    host.apply(lasting, plan_host(lasting, host.observe(lasting), {}))
    assert boot.read_text() == "enabled\n"
    restore_host(host)
    assert boot.read_text() == "disabled\n"


def test_what_was_kept_and_what_was_killed_since_are_restored_by_one_restore(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    kept = locked("kept")
    deploy(kept, tuned(tmp_path))
    kept.commit()
    kept.lock.unlock()
    killed = locked("killed")
    deploy(killed, tuned(tmp_path, b"tuned again\n"))
    killed.lock.unlock()
    restore_hosts(tmp_path / "lost", {"here": here}, SERVICE_MANAGER, prefers_host_copies=True)
    assert (tmp_path / "conf").read_text() == (tmp_path / "more").read_text() == "original\n"
    assert overwritten(tmp_path) == {}
    assert (
        killed.read_backup_copy(APPLIED_BACKUP_FILE) is killed.read_backup_copy(BACKUP_FILE) is None
    )


def test_originals_that_the_software_refuses_by_now_do_not_replace_what_works(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    conf, more = str(tmp_path / "conf"), str(tmp_path / "more")
    refused = tmp_path / "refused"
    check = BackupCheck(
        UNIT, ("sh", "-c", f'! grep -f "{refused}" -- "$1"', "sh", conf), (conf,), "/nowhere"
    )
    refused.write_text("never\n")
    deploy(host, tuned(tmp_path))
    host.backup = replace(host.backup, checks=(check,))
    refused.write_text("original\n")
    with pytest.raises(AutotuneError, match=r"(?s)server\.service refuses .*original"):
        restore_host(host)
    assert Path(conf).read_text() == "tuned\n"
    assert Path(more).read_text() == "original\n"
    assert host.is_changed
    assert not [path for path in tmp_path.iterdir() if "autotune-new" in path.name]
    refused.write_text("never\n")
    restore_host(host)
    assert Path(conf).read_text() == "original\n"
    assert not host.is_changed


def test_no_secret_of_a_refused_original_is_repeated(locked: Locked, tmp_path: Path) -> None:
    host, conf = locked("study"), str(tmp_path / "conf")
    Path(conf).write_text("requirepass hunter2hunter2\n")
    deploy(host, tuned(tmp_path))
    words = ("sh", "-c", '! sed -n "s/requirepass /unknown /p" "$1" | grep .', "sh", conf)
    host.backup = replace(host.backup, checks=(BackupCheck(UNIT, words, (conf,), "/nowhere"),))
    with pytest.raises(AutotuneError, match=r"refuses its original files.*unknown \(masked\)"):
        restore_host(host)


@pytest.mark.parametrize("works", [True, False])
def test_options_of_a_program_are_validated_as_its_original_has_them(
    locked: Locked, tmp_path: Path, works: bool
) -> None:
    site = Placement(tier="cache", host="here", role=Role.CACHE, directory=str(tmp_path / "trial"),
                listen=Endpoint("::1", 1), installed=True,
                programs={"memcached": "false"})  # fmt: skip
    part, path = ServiceInstance(SHIPPED.list_by_role(Role.CACHE)[0], site), "/etc/memcached.conf"
    how = part.service.build_validation(site, {path: b"-m 64\n"})
    assert how is not None
    recorded = build_backup_check(
        ConfigurationCheck(part, how, {path: b""}, (path,)),
        HostState({path: FileState(b"-m 1 # M\n-d\n")}),
    )
    assert recorded is not None
    assert recorded.argv == ("false", "-m", "1", "-s", "trial.sock")
    host, conf = locked("study"), str(tmp_path / "conf")
    deploy(host, tuned(tmp_path))
    host.backup = replace(host.backup, checks=(replace(recorded, unit=UNIT, files=(conf,)),))
    if works:
        with pytest.raises(AutotuneError, match="refuses its original files"):
            restore_host(host)
    else:
        (tmp_path / "units" / UNIT).write_text("inactive\n")
        restore_host(host)
    assert Path(conf).read_text() == ("tuned\n" if works else "original\n")


def test_originals_are_restored_though_nothing_there_validates(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    conf = str(tmp_path / "conf")
    deploy(host, tuned(tmp_path))
    host.backup = replace(host.backup, checks=(BackupCheck(UNIT, ("false", conf), (conf,), "/"),))
    restore_host(host)
    assert Path(conf).read_text() == "original\n"


def test_a_second_deployment_kept_leaves_the_record_of_the_first(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    for study, content in (("first", b"tuned\n"), ("second", b"tuned again\n")):
        host = locked(study)
        deploy(host, tuned(tmp_path, content))
        host.commit()
        host.lock.unlock()
    lines = restore_hosts(
        tmp_path / "lost", {"here": here}, SERVICE_MANAGER, prefers_host_copies=True
    )
    assert "restored 2 files" in lines[-1]
    assert (tmp_path / "conf").read_text() == (tmp_path / "more").read_text() == "original\n"
    assert overwritten(tmp_path) == {}
    assert host.read_backup_copy(APPLIED_BACKUP_FILE) is None


def test_a_backup_is_not_deleted_if_its_deployment_cannot_be_kept(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "autotune" / "kept.json.new").mkdir()  # so the host cannot write the kept backup
    with pytest.raises(CommandFailed, match=r"kept\.json"):
        host.commit()
    assert host.read_backup_copy(BACKUP_FILE) == host.backup
    restore_host(host)
    assert (tmp_path / "conf").read_text() == "original\n"


class KernelHost(Host):
    """A host whose files of kernel values are in ``place``."""

    def rewritten(self, script: bytes) -> bytes:
        directory = bytes(Path(SYSCTL_FILE).parent)
        return super().rewritten(script.replace(directory, bytes(self.place)))

    @property
    def sysctl_file(self) -> Path:
        return self.place / Path(SYSCTL_FILE).name


def deployed(transport: KernelHost, place: Path) -> ManagedHost:
    """The locked host with a deployment that is not kept yet."""
    store = BackupStore(place / "studies" / "study")
    host = ManagedHost("here", transport, store, "study", SERVICE_MANAGER)
    host.lock.lock()
    deploy(host, tuned(place))
    return host


@pytest.mark.parametrize(
    "earlier", ["", "# of the team\nvm/swappiness = 10\nkernel.ostype = earlier\n"]
)
def test_kernel_values_that_survive_a_reboot_are_in_a_file_until_the_restore(
    here: Host, tmp_path: Path, earlier: str
) -> None:
    transport = KernelHost(tmp_path)
    if earlier:
        transport.sysctl_file.write_text(earlier)
    host = deployed(transport, tmp_path)
    backup = host.backup
    changed = replace(backup.state, sysctls={"kernel.ostype": "another value"})
    host.backup = replace(backup, state=changed)
    host.persist_state(tuned(tmp_path))
    kept_lines = earlier.splitlines()[:2]
    assert transport.sysctl_file.read_text().splitlines() == [
        "# Written by autotune.", "kernel.ostype = Linux", *kept_lines,
    ]  # fmt: skip
    assert any(SYSCTL_FILE in note for note in host.notes)
    unchanged = replace(host.backup.state, sysctls=backup.state.sysctls)
    host.backup = replace(host.backup, state=unchanged)
    restore_host(host)
    assert transport.sysctl_file.exists() == bool(earlier)
    if earlier:
        assert transport.sysctl_file.read_text() == earlier
    host.lock.unlock()


@pytest.mark.parametrize(
    ("earlier", "is_kept"),
    [("vm.swappiness = 10", True), ("kernel.ostype=Linux", True), ("kernel.ostype = other", False)],
    ids=["another name", "as deployed", "another value"],
)
def test_a_deployment_without_kernel_values_keeps_those_that_agree_with_it(
    here: Host, tmp_path: Path, earlier: str, is_kept: bool
) -> None:
    """An export may have set the value that the study found and kept."""
    transport = KernelHost(tmp_path)
    transport.sysctl_file.write_text(f"{earlier}\n# the end\n")
    host = deployed(transport, tmp_path)
    host.persist_state(tuned(tmp_path))  # the kernel value is the original one
    kept_lines = transport.sysctl_file.read_text().splitlines()[1:]
    assert kept_lines == [*([earlier] if is_kept else []), "# the end"]
    restore_host(host)
    host.lock.unlock()


def test_the_record_of_a_kept_host_without_changes_is_removed_by_the_restore(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    kept = locked("study")
    kept.back_up(tuned(tmp_path))
    kept.commit()
    kept.lock.unlock()
    restored(here, tmp_path)
    assert kept.read_backup_copy(APPLIED_BACKUP_FILE) is None


def test_a_later_study_of_the_same_name_leaves_the_record_of_what_was_kept(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    deployed_and_unlocked(locked, tmp_path, keeps=True)
    shutil.rmtree(tmp_path / "studies")  # or the next study is started in another directory
    later = locked("study")
    deploy(later, tuned(tmp_path, b"tuned again\n"))
    restore_host(later)
    later.lock.unlock()
    assert (tmp_path / "conf").read_text() == "tuned\n"
    restore_hosts(tmp_path / "lost", {"here": here}, SERVICE_MANAGER, prefers_host_copies=True)
    assert (tmp_path / "conf").read_text() == (tmp_path / "more").read_text() == "original\n"
    assert later.read_backup_copy(APPLIED_BACKUP_FILE) is None


def test_a_session_of_a_study_does_not_revert_what_the_study_kept(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    kept = deployed_and_unlocked(locked, tmp_path, keeps=True)
    here.name = "here"
    hosts = ManagedHosts([here], tmp_path / "studies" / "study", print, SERVICE_MANAGER)
    with pytest.raises(AutotuneError, match="still has the configuration that study study kept"):
        hosts.lock()
    hosts.unlock(restored=True)  # as each session does after an error
    assert (tmp_path / "conf").read_text() == "tuned\n"
    assert kept.read_backup_copy(APPLIED_BACKUP_FILE) == kept.backup
    assert any("restored 2 files" in line for line in restored(here, tmp_path))
    assert (tmp_path / "conf").read_text() == "original\n"


def test_a_session_of_a_study_that_was_kept_leaves_the_restore_of_a_killed_study_to_others(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    """Otherwise, the restore would delete the copy of what was kept."""
    kept = deployed_and_unlocked(locked, tmp_path, keeps=True)
    killed = locked("later")
    deploy(killed, tuned(tmp_path, b"tuned again\n"))
    killed.lock.unlock()
    here.name = "here"
    hosts = ManagedHosts([here], tmp_path / "studies" / "study", print, SERVICE_MANAGER)
    with pytest.raises(AutotuneError, match="still has the configuration that study study kept"):
        hosts.lock()
    hosts.unlock(restored=True)
    assert (tmp_path / "conf").read_text() == "tuned again\n"
    assert BackupStore(tmp_path / "studies" / "study").read("here") == kept.backup
    for study in ("later", "study"):
        assert any("restored 2 files" in line for line in restored(here, tmp_path, study))
    assert (tmp_path / "conf").read_text() == "original\n"


def test_a_configuration_that_cannot_be_recorded_is_not_kept(here: Host, tmp_path: Path) -> None:
    here.name = "here"
    hosts = ManagedHosts([here], tmp_path / "studies" / "study", print, SERVICE_MANAGER)
    hosts.lock()
    deploy(hosts["here"], tuned(tmp_path))
    (tmp_path / "autotune" / "kept.json.new").mkdir()  # so the host cannot write the kept backup
    with pytest.raises(AutotuneError, match=r"^not kept: here: .*kept\.json"):
        hosts.unlock(restored=False)


def of_another_machine(here: Host, place: Path) -> ManagedHost:
    """The host, held by a tuner whose studies are elsewhere."""
    store = BackupStore(place / "elsewhere" / "theirs")
    other = ManagedHost("here", here, store, "theirs", SERVICE_MANAGER)
    other.lock.lock()
    return other


def restored(here: Host, place: Path, study: str = "study") -> list[str]:
    return restore_hosts(
        place / "studies" / study, {"here": here}, SERVICE_MANAGER, prefers_host_copies=False
    )


@pytest.mark.parametrize("resumed", [True, False])
def test_a_copy_that_is_out_of_date_reverts_no_later_work(
    locked: Locked, here: Host, tmp_path: Path, resumed: bool
) -> None:
    killed = deployed_and_unlocked(locked, tmp_path)
    other = of_another_machine(here, tmp_path)
    assert restore_orphaned(other)
    other.lock.unlock()
    (tmp_path / "conf").write_text("later work\n")
    (tmp_path / "restarted").unlink()
    if resumed:
        again = locked("study")
        assert restore_orphaned(again) == ()
        (line,) = again.notes
    else:
        (line,) = restored(here, tmp_path)
    assert "others have restored it" in line
    assert (tmp_path / "conf").read_text() == "later work\n"
    assert (tmp_path / "more").read_text() == "original\n"
    assert not (tmp_path / "restarted").exists()
    assert decode_backup(Path(line.split()[-1]).read_bytes(), line) == killed.backup
    assert restored(here, tmp_path) == []


@pytest.mark.parametrize("by_its_own_tuner", [True, False])
def test_locks_are_renewed_while_hosts_are_restored(
    locked: Locked, here: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    by_its_own_tuner: bool,
) -> None:  # fmt: skip
    """A database may need minutes to stop. Another tuner takes over a lock that is not renewed."""
    renewed = threading.Event()

    def restore(hosts: list[ManagedHost]) -> HostResults[tuple[str, ...]]:
        renewed.clear()
        assert renewed.wait(20)
        return HostResults({host.name: () for host in hosts})

    monkeypatch.setattr(managed_hosts, "RENEWAL_SECONDS", 0.001)
    monkeypatch.setattr(managed_hosts, "renew_locks", lambda _: renewed.set())
    if by_its_own_tuner:
        hosts = ManagedHosts([here], tmp_path / "studies" / "study", print, SERVICE_MANAGER)
        hosts.lock()
        monkeypatch.setattr(managed_hosts, "restore_in_order", restore)
        hosts.unlock(restored=True)
    else:
        killed = locked("study")
        deploy(killed, tuned(tmp_path))
        killed.lock.unlock()
        monkeypatch.setattr(managed_hosts, "restore_in_order", restore)
        restored(here, tmp_path)


@pytest.mark.parametrize("created", [(), ("dump",)])
def test_a_copy_from_before_the_first_change_reverts_nothing_that_others_kept(
    locked: Locked, here: Host, tmp_path: Path, created: tuple[str, ...]
) -> None:
    created_files = [str(tmp_path / name) for name in created]
    killed = locked("study")
    killed.back_up(tuned(tmp_path), created_files)  # and is killed while it measures the baseline
    killed.lock.unlock()
    other = of_another_machine(here, tmp_path)
    restore_orphaned(other)
    other.back_up(tuned(tmp_path), created_files)
    deploy(other, tuned(tmp_path))
    other.commit()
    other.lock.unlock()
    (line,) = restored(here, tmp_path)
    assert "others have restored it" in line
    assert (tmp_path / "conf").read_text() == "tuned\n"
    assert other.read_backup_copy(APPLIED_BACKUP_FILE) == other.backup


def test_a_copy_that_was_not_compared_with_its_host_is_not_restored(
    locked: Locked, here: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = deployed_and_unlocked(locked, tmp_path)
    other = of_another_machine(here, tmp_path)
    restore_orphaned(other)
    other.lock.unlock()
    (tmp_path / "conf").write_text("later work\n")

    def lose(host: ManagedHost) -> None:
        raise HostUnreachable("lost")

    here.name = "here"
    hosts = ManagedHosts([here], tmp_path / "studies" / "study", print, SERVICE_MANAGER)
    monkeypatch.setattr(managed_hosts, "read_host_backup", lose)
    with pytest.raises(HostUnreachable):
        hosts.lock()
    hosts.unlock(restored=True)
    assert (tmp_path / "conf").read_text() == "later work\n"
    assert killed.lock.lock() is None


def test_a_load_host_that_is_locked_by_others_changes_no_other_load_host(
    here: Host, tmp_path: Path
) -> None:
    load_hosts = [Host(tmp_path / name) for name in "ab"]
    for host, name in zip(load_hosts, "ab", strict=True):
        host.name = name
        host.place.mkdir()
    sysctl = tmp_path / "bin" / "sysctl"
    sysctl.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/set\n')
    sysctl.chmod(0o755)
    key, store = "kernel.ostype", BackupStore(tmp_path / "study")
    state = HostState(sysctls={key: "before the killed study"})
    store.write(HostBackup("a", "study", state, last_written={key: ["others' value"]}))
    other = HostLock(load_hosts[1], "other")
    other.lock()
    locked_hosts = LoadHosts(load_hosts, tmp_path / "study", print)
    with pytest.raises(LockedError):
        locked_hosts.lock_and_adjust_kernel((), lambda _: {})
    assert not (tmp_path / "set").exists()
    assert store.list_hosts() == ("a",)
    assert HostLock(load_hosts[0], "next").lock() is None
    other.unlock()


@pytest.mark.parametrize("has_manager", [True, False])
def test_a_load_host_that_a_killed_study_tuned_is_restored_with_its_units_or_not_at_all(
    locked: Locked, here: Host, tmp_path: Path, has_manager: bool
) -> None:
    deployed_and_unlocked(locked, tmp_path)
    here.name = "here"
    noted: list[str] = []
    manager = SERVICE_MANAGER if has_manager else None
    load_hosts = LoadHosts([here], tmp_path / "studies" / "next", noted.append, manager)
    load_hosts.lock_and_adjust_kernel((), lambda _: {})
    load_hosts.unlock(restored=True)
    if has_manager:
        assert "restored 2 files" in noted[0]
        assert (tmp_path / "conf").read_text() == "original\n"
        return
    assert "here still has the configuration of study study, which was killed" in noted[0]
    assert (tmp_path / "conf").read_text() == "tuned\n"
    assert any("restored 2 files" in line for line in restored(here, tmp_path))


def test_a_start_that_never_ends_is_a_fault_of_the_configuration(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    (tmp_path / "units" / UNIT).write_text("hangs\n")
    desired = replace(tuned(tmp_path), starts={UNIT: UnitStart(seconds=1.0)})
    host.back_up(desired)
    plan = plan_host(desired, host.observe(desired), {}, {UNIT: Action.RESTART})
    host.stage(desired, plan)
    host._stop_seconds = {UNIT: 1.0}
    with pytest.raises(ApplyFailed, match=f"{UNIT} did not restart within 2 s"):
        host.apply(desired, plan)
    (tmp_path / "units" / UNIT).write_text("active\n")
    assert restore_host(host) == ("here: restored 2 files, 0 sysctls, 1 unit",)


def test_a_check_does_not_see_files_that_the_plan_removes(locked: Locked, tmp_path: Path) -> None:
    host = locked("study")
    removed = str(tmp_path / "more")
    desired = HostState({str(tmp_path / "conf"): FileState(b"new\n"), removed: FileState()})
    host.back_up(desired)
    plan = plan_host(desired, host.observe(desired), {})
    service: Any = SimpleNamespace(
        name="app", placement=SimpleNamespace(directory=str(tmp_path / "run"))
    )
    script = 'cat "$@"; exit 1'
    files = dict.fromkeys(desired.files, b"")
    check = ConfigurationCheck(service, ("sh", "-c", script, "sh", *files), files, tuple(files))
    with pytest.raises(InvalidConfiguration, match=r"^app: new$"):
        host.stage(desired, plan, [check])
    assert (tmp_path / "more").read_text() == "original\n"
    host.discard_staged(plan)
    assert not list(tmp_path.glob(".*autotune-new"))


def test_a_new_file_gets_the_mode_that_its_service_declares(locked: Locked, tmp_path: Path) -> None:
    host = locked("study")
    desired = HostState({
        str(tmp_path / "new"): FileState(b"password\n", new_mode=0o600),
        str(tmp_path / "conf"): FileState(b"tuned\n", new_mode=0o600),
    })  # fmt: skip
    (tmp_path / "conf").chmod(0o640)
    host.back_up(desired)
    plan = plan_host(desired, host.observe(desired), {})
    host.stage(desired, plan)
    host.apply(desired, plan)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "conf")]
    assert modes == [0o600, 0o640]


def test_directories_are_made_below_the_root_directory() -> None:
    script = f'mkdir() {{ echo made "$3"; }}; sync() {{ echo synced "$2"; }}\n{SHELL_FUNCTIONS}'
    run = subprocess.run(
        ["sh", "-c", f"{script}\nmade /autotune-absent/config"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert run.stdout.splitlines() == [
        "made /autotune-absent", "synced /",
        "made /autotune-absent/config", "synced /autotune-absent",
    ]  # fmt: skip


def test_a_copy_of_a_host_that_is_as_it_was_goes_without_a_word(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    deployed_and_unlocked(locked, tmp_path)
    other = of_another_machine(here, tmp_path)
    restore_orphaned(other)
    other.lock.unlock()
    assert restored(here, tmp_path) == []
    assert not (tmp_path / "studies" / "study" / "originals").exists()


def test_without_the_hosts_record_what_is_still_as_autotune_wrote_it_is_restored(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    killed = locked("study")
    killed.back_up(tuned(tmp_path), created_files=[str(tmp_path / "dump")])
    deploy(killed, tuned(tmp_path))
    killed.lock.unlock()
    shutil.rmtree(tmp_path / "autotune")
    (tmp_path / "dump").write_text("data\n")
    (tmp_path / "more").write_text("later work\n")
    lines = restored(here, tmp_path)
    assert [
        line
        for line in lines
        if f"{tmp_path / 'more'} is not restored, because it was changed" in line
    ]
    assert (tmp_path / "conf").read_text() == "original\n"
    assert (tmp_path / "more").read_text() == "later work\n"
    assert not (tmp_path / "dump").exists()
    assert not (tmp_path / "studies" / "study" / "originals").exists()


def test_what_another_study_has_changed_since_is_restored_by_that_one(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    deployed_and_unlocked(locked, tmp_path)
    other = of_another_machine(here, tmp_path)
    restore_orphaned(other)
    (tmp_path / "conf").write_text("later work\n")
    deploy(other, tuned(tmp_path, b"tuned by others\n"))
    other.lock.unlock()
    with pytest.raises(AutotuneError, match="study theirs has changed it since"):
        restored(here, tmp_path)
    assert (tmp_path / "conf").read_text() == "tuned by others\n"
    restore_hosts(tmp_path / "lost", {"here": here}, SERVICE_MANAGER, prefers_host_copies=True)
    assert "others have restored it" in restored(here, tmp_path)[0]
    assert (tmp_path / "conf").read_text() == "later work\n"


def kill_and_take_over(locked: Locked, rewrite: Callable[[dict[str, Any]], object]) -> ManagedHost:
    """The next study on a host whose tuner was killed, after the host's root changed the record."""
    killed = locked("study")
    place = killed.transport.place  # type: ignore[attr-defined]  # a Host
    deploy(killed, tuned(place))
    record = place / "autotune" / "originals.json"
    document = json.loads(record.read_text())
    rewrite(document)
    record.write_text(json.dumps(document))
    killed.lock.unlock()
    return locked("next")


def test_the_copy_of_a_killed_study_goes_with_its_restore(locked: Locked, tmp_path: Path) -> None:
    copy = tmp_path / "studies" / "study" / "originals" / "here.json"
    host = kill_and_take_over(locked, lambda record: copy.exists())
    assert copy.exists()
    lines = restore_orphaned(host)
    assert "(study study was killed)" in lines[0]
    assert not copy.exists()


def test_a_lock_reports_what_it_restores(locked: Locked, here: Host, tmp_path: Path) -> None:
    deployed_and_unlocked(locked, tmp_path)
    here.name, notes = "here", list[str]()
    hosts = ManagedHosts([here], tmp_path / "studies" / "next", notes.append, SERVICE_MANAGER)
    hosts.lock()
    hosts.unlock(restored=True)
    assert (tmp_path / "conf").read_text() == "original\n"
    assert any("(study study was killed)" in note for note in notes)


@pytest.mark.parametrize("name", ["../studies/study", "..", ".", "", "a/b", "gone", "study"])
def test_a_hosts_record_removes_no_copy_of_another(
    locked: Locked, tmp_path: Path, name: str
) -> None:
    def rewrite(record: dict[str, Any]) -> None:
        record["study"] = name
        record["files"].pop(str(tmp_path / "more"))

    copies = [tmp_path / "studies" / "study" / "originals" / "here.json"]
    copies.append(tmp_path / "originals" / "here.json")
    copies[1].parent.mkdir()
    copies[1].write_text("{}")
    host = kill_and_take_over(locked, rewrite)
    assert restore_orphaned(host)
    assert all(copy.exists() for copy in copies)


def test_what_is_kept_is_restored_study_by_study_and_edits_since_are_kept_aside(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    contents = {"first": b"tuned\n", "second": b"tuned again\n"}
    for study, content in contents.items():
        host = locked(study)
        deploy(host, tuned(tmp_path, content))
        host.commit()
        host.lock.unlock()
    (tmp_path / "conf").write_text("edited for a month\n")
    for study, left in (("second", "tuned\n"), ("first", "original\n")):
        assert any("restored 2 files" in line for line in restored(here, tmp_path, study))
        assert (tmp_path / "conf").read_text() == (tmp_path / "more").read_text() == left
    assert overwritten(tmp_path) == {"conf": "edited for a month\n"}


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "killed"])
def test_what_others_changed_between_a_kept_deployment_and_a_later_study_is_kept_aside(
    locked: Locked, here: Host, tmp_path: Path, *, keeps: bool
) -> None:
    deployed_and_unlocked(locked, tmp_path, keeps=True)
    (tmp_path / "conf").write_text("edited by hand\n")
    later = locked("later")
    deploy(later, tuned(tmp_path, b"tuned again\n"))
    if keeps:
        later.commit()
    later.lock.unlock()
    lines = restore_hosts(
        tmp_path / "lost", {"here": here}, SERVICE_MANAGER, prefers_host_copies=True
    )
    assert (tmp_path / "conf").read_text() == (tmp_path / "more").read_text() == "original\n"
    assert overwritten(tmp_path) == {"conf": "edited by hand\n"}
    assert len([line for line in lines if "conf, which others had changed, is in" in line]) == 1


def keep_one_of_two_files(locked: Locked, place: Path) -> None:
    """Keep a deployment that changes only one of its files, as `apply` often does. Others edit the
    other file later.
    """
    files = {
        str(place / "conf"): FileState(b"tuned\n"),
        str(place / "more"): FileState(b"original\n"),
    }
    host = locked("study")
    deploy(host, replace(tuned(place), files=files))
    host.commit()
    host.lock.unlock()
    (place / "more").write_text("edited for a month\n")


def assert_only_the_deployed_file_is_restored(place: Path) -> None:
    assert (place / "conf").read_text() == "original\n"
    assert (place / "more").read_text() == "edited for a month\n"
    assert overwritten(place) == {}
    assert not (place / "autotune" / "kept.json").exists()


@pytest.mark.parametrize("is_study_lost", [True, False])
def test_a_file_that_only_others_changed_is_not_restored(
    locked: Locked, here: Host, tmp_path: Path, is_study_lost: bool
) -> None:
    keep_one_of_two_files(locked, tmp_path)
    study = tmp_path / ("lost" if is_study_lost else "studies/study")
    lines = restore_hosts(study, {"here": here}, SERVICE_MANAGER, prefers_host_copies=is_study_lost)
    assert_only_the_deployed_file_is_restored(tmp_path)
    assert (
        f"here: {tmp_path / 'more'} is not restored, because only others have changed it" in lines
    )


def test_a_file_that_only_a_later_study_wrote_is_restored_as_that_study_read_it(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    keep_one_of_two_files(locked, tmp_path)
    killed = locked("later")
    deploy(killed, tuned(tmp_path, b"tuned again\n"))
    killed.lock.unlock()
    restore_hosts(tmp_path / "lost", {"here": here}, SERVICE_MANAGER, prefers_host_copies=True)
    assert_only_the_deployed_file_is_restored(tmp_path)


def test_nothing_is_kept_after_all_studies_that_wrote_different_files_are_restored(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    """The record of a reverted deployment would become part of the next deployment's backup."""
    keep_one_of_two_files(locked, tmp_path)
    later = locked("later")
    deploy(later, tuned(tmp_path, b"tuned again\n"))
    later.commit()
    later.lock.unlock()
    for study, is_kept in (("later", True), ("study", False)):
        restored(here, tmp_path, study)
        assert (tmp_path / "autotune" / "kept.json").exists() == is_kept
    assert_only_the_deployed_file_is_restored(tmp_path)


def test_the_record_of_a_kept_deployment_outlives_a_study_with_the_same_name(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    """Two checkouts of a project give their studies the same names."""
    keep_one_of_two_files(locked, tmp_path)
    store = BackupStore(tmp_path / "elsewhere" / "study")
    host = ManagedHost("here", here, store, "study", SERVICE_MANAGER)
    host.lock.lock()
    deploy(host, tuned(tmp_path))
    restore_host(host)
    host.lock.unlock()
    assert (tmp_path / "conf").read_text() == "tuned\n"
    assert (tmp_path / "autotune" / "kept.json").exists()


@pytest.mark.parametrize(
    ("definition", "is_restored"),
    [("image=2 mounts=1 replaced=yes", True), ("image=2 mounts=2", False)],
)
def test_a_container_that_others_replaced_is_not_compared_with_its_backup(
    here: Host, tmp_path: Path, definition: str, is_restored: bool
) -> None:
    """As after the release of a new image. Otherwise, its host could never be restored."""
    definitions = ["image=1 mounts=1"]

    def parse_units(names: tuple[str, ...], output: str) -> dict[str, ObservedUnit]:
        units = SERVICE_MANAGER.parse_units(names, output)
        return {name: replace(unit, definition=definitions[-1]) for name, unit in units.items()}

    manager = replace(SERVICE_MANAGER, parse_units=parse_units)
    host = ManagedHost("here", here, BackupStore(tmp_path / "study"), "study", manager)
    host.lock.lock()
    deploy(host, tuned(tmp_path))
    definitions.append(definition)
    if is_restored:
        restore_host(host)
        assert host.notes == [f"here: others have recreated {UNIT} since the backup"]
    else:
        with pytest.raises(AutotuneError, match=rf"backup: {UNIT} \(image, mounts\)"):
            restore_host(host)
    assert host.is_changed != is_restored
    assert (tmp_path / "conf").read_text() == "original\n"
    host.lock.unlock()


def test_a_host_that_is_not_as_before_is_not_rolled_back(here: Host, tmp_path: Path) -> None:
    unit = tmp_path / "units" / UNIT
    unit.write_text("inactive\n")
    here.name = "here"
    hosts = ManagedHosts([here], tmp_path / "study", print, SERVICE_MANAGER)
    nothing: Any = SimpleNamespace(installed=True, service_manager=None)
    fleet = Deployment(nothing, nothing, nothing, nothing, hosts, "study",
                       probe=EntryProbe(lambda: "no answer"), loads_data=False)  # fmt: skip
    fleet.lock_hosts()
    deploy(hosts["here"], tuned(tmp_path))
    plan = HostPlan(files_to_write=(str(tmp_path / "conf"),), unit_actions={UNIT: Action.RESTART})
    again = tmp_path / "units" / f"{UNIT}.again"
    again.touch()
    with pytest.raises(
        AutotuneError, match=rf"(?s)refused.*here differs from its previous state: {UNIT}"
    ):
        fleet._roll_back({"here": plan}, AutotuneError("refused"))
    assert (tmp_path / "conf").read_text() == "original\n"
    again.unlink()
    fleet.restore()
    assert unit.read_text() == "inactive\n"


@pytest.mark.parametrize("refuses", [True, False])
def test_a_failed_rollback_reports_original_files_that_were_refused(
    here: Host, tmp_path: Path, refuses: bool
) -> None:
    here.name, conf = "here", str(tmp_path / "conf")
    hosts = ManagedHosts([here], tmp_path / "study", print, SERVICE_MANAGER)
    hosts.lock()
    host = hosts["here"]
    deploy(host, tuned(tmp_path))
    words = ("sh", "-c", f'! grep {"original" if refuses else "never"} "$1"', "sh", conf)
    check = BackupCheck(UNIT, words, (conf,), "/nowhere")
    host.backup = replace(host.backup, checks=(check,))
    (tmp_path / "units" / UNIT).write_text("broken\n")
    errors = roll_back_hosts(hosts, {"here": {UNIT: Action.RESTART}}, None, 60.0)
    assert f"{UNIT} does not start" in errors["here"].message
    assert ("refuses its original files" in errors["here"].message) == refuses
    host.backup = replace(host.backup, checks=())
    (tmp_path / "units" / UNIT).write_text("active\n")
    hosts.unlock(restored=True)


def test_what_a_killed_deployment_staged_goes_with_the_restore(
    locked: Locked, tmp_path: Path
) -> None:
    host, desired = locked("study"), tuned(tmp_path)
    host.back_up(desired)
    host.stage(desired, plan_host(desired, host.observe(desired), {}))
    staged = {".conf.autotune-new", ".more.autotune-new"}
    assert staged <= {path.name for path in tmp_path.iterdir()}
    restore_host(host)
    assert not staged & {path.name for path in tmp_path.iterdir()}


@pytest.mark.long
def test_interrupted_while_files_are_staged_none_of_them_is_left(
    here: Host, tmp_path: Path
) -> None:
    places = {name: tmp_path / name for name in "ab"}
    for place in places.values():
        place.mkdir()
        (place / "conf").write_text("original\n")
    transports = [Host(place) for place in places.values()]
    for transport, name in zip(transports, places, strict=True):
        transport.name = name
    notes: list[str] = []
    hosts = ManagedHosts(transports, tmp_path / "study", notes.append)
    hosts.lock()

    def stage(host: ManagedHost) -> None:
        desired = HostState({str(places[host.name] / "conf"): FileState(b"tuned\n")})
        host.back_up(desired)
        if host.name == "a":
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            time.sleep(0.5)  # a host that is late is staged when the command is about to end
        host.stage(desired, plan_host(desired, host.observe(desired), {}))

    with pytest.raises(KeyboardInterrupt):
        hosts.run_on_hosts(places, stage)
    hosts.unlock(restored=True)
    assert [path.name for path in tmp_path.rglob("*") if "autotune-new" in path.name] == []
    assert {(place / "conf").read_text() for place in places.values()} == {"original\n"}
    assert notes == []


@contextmanager
def late_batch(here: Host, place: Path) -> Iterator[None]:
    """Commands of a lost connection, which run while the block begins and then write `conf`."""
    late = ("sh", "-c", f"touch {place}/begun; sleep 1; echo late >{place}/conf")
    batch = threading.Thread(
        target=run_commands, args=(here, [Command(late)]), kwargs={"exclusive": True}
    )
    batch.start()
    while not (place / "begun").exists():
        time.sleep(0.01)
    yield
    batch.join()


def test_a_host_is_observed_when_what_a_lost_connection_left_is_over(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    host = locked("study")
    with late_batch(here, tmp_path):
        observed = host.observe(tuned(tmp_path))
    assert observed.files[str(tmp_path / "conf")].matches(FileState(b"late\n"))


def test_a_host_is_changed_when_what_a_lost_connection_left_is_over(
    locked: Locked, here: Host, tmp_path: Path
) -> None:
    host = locked("study")
    with late_batch(here, tmp_path):
        host._run_locked([Command(("sh", "-c", f"echo changed >{tmp_path}/conf"))])
    assert (tmp_path / "conf").read_text() == "changed\n"


@pytest.fixture
def access_list(tmp_path: Path) -> bytes:
    """Of `conf`: its group reads, account 33 reads and writes, so that the mask is `rw-`."""
    entries = [(OWNER, 6, -1), (ACCOUNT, 6, 33), (GROUP, 4, -1), (MASK, 6, -1), (OTHERS, 0, -1)]
    return set_access_list(tmp_path / "conf", entries)


def test_an_access_list_and_attributes_are_kept_while_tuned_and_restored(
    locked: Locked, tmp_path: Path, access_list: bytes
) -> None:
    with suppress(OSError):  # not every file system has them
        os.setxattr(tmp_path / "conf", "user.mine", b"kept")
    attributes = {*os.listxattr(tmp_path / "conf")}
    host = locked("study")
    deploy(host, tuned(tmp_path))
    assert (tmp_path / "conf").read_text() == "tuned\n"
    assert os.getxattr(tmp_path / "conf", "system.posix_acl_access") == access_list
    restore_host(host)
    assert (tmp_path / "conf").read_text() == "original\n"
    assert os.getxattr(tmp_path / "conf", "system.posix_acl_access") == access_list
    assert {*os.listxattr(tmp_path / "conf")} == attributes


def test_a_long_access_list_is_recorded_completely(locked: Locked, tmp_path: Path) -> None:
    """`setfacl` refuses an access list that ends early, so the host could not be restored."""
    set_access_list(tmp_path / "conf", LONG_ACCESS_LIST)
    host = locked("study")
    deploy(host, tuned(tmp_path))
    assert host.original_state.files[str(tmp_path / "conf")].acl == LONG_ACCESS_TEXT
    restore_host(host)
    assert not host.is_changed


def test_an_access_list_that_is_lost_is_noticed(
    locked: Locked, tmp_path: Path, access_list: bytes
) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "conf").unlink()
    if not shutil.which("setfacl"):
        with pytest.raises(AutotuneError, match=r"conf had the ACL user::rw-,user:[^,]+:rw-,"):
            restore_host(host)
        os.setxattr(tmp_path / "conf", "system.posix_acl_access", access_list)
    restore_host(host)
    assert os.getxattr(tmp_path / "conf", "system.posix_acl_access") == access_list
    assert not host.is_changed


def test_an_access_list_that_others_added_is_removed(
    locked: Locked, tmp_path: Path, access_list: bytes
) -> None:
    attribute = "system.posix_acl_access"
    os.removexattr(tmp_path / "conf", attribute)
    host = locked("study")
    deploy(host, tuned(tmp_path))
    os.setxattr(tmp_path / "conf", attribute, access_list)
    setfacl = tmp_path / "bin" / "setfacl"
    setfacl.write_text(
        f"#!{sys.executable}\nimport os, sys\nassert sys.argv[1:4] == ['-n', '--set=user::rw-,"
        f"group::---,other::---', '--']\n"
        f"if {attribute!r} in os.listxattr(sys.argv[4]): os.removexattr(sys.argv[4], {attribute!r})\n"
    )
    setfacl.chmod(0o755)
    restore_host(host)
    assert attribute not in os.listxattr(tmp_path / "conf")
    assert not host.is_changed


def test_an_access_list_that_was_restored_is_not_reported(
    locked: Locked, tmp_path: Path, access_list: bytes
) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "units" / UNIT).write_text("broken\n")
    with pytest.raises(AutotuneError, match="does not start") as refused:
        restore_host(host)
    assert os.getxattr(tmp_path / "conf", "system.posix_acl_access") == access_list
    assert "ACL" not in refused.value.message


def test_a_file_that_has_other_names_is_refused(locked: Locked, tmp_path: Path) -> None:
    os.link(tmp_path / "conf", tmp_path / "other")
    host = locked("study")
    with pytest.raises(AutotuneError, match="hard links"):
        host.back_up(tuned(tmp_path))
    assert host.read_backup_copy(BACKUP_FILE) is None


def test_a_link_to_a_path_that_is_not_utf8_is_refused(locked: Locked, tmp_path: Path) -> None:
    (tmp_path / "conf").unlink()
    (tmp_path / "conf").symlink_to(os.fsdecode(b"caf\xe9"))
    host = locked("study")
    with pytest.raises(AutotuneError, match="conf is a link to a path that is not UTF-8"):
        host.back_up(tuned(tmp_path))
    assert not host.is_changed


class Cut(Host):
    """A host whose connection is lost before one exchange gets there."""

    cut = False

    def run(self, *argv: Any, **how: Any) -> CommandResult:
        if self.cut:
            raise HostUnreachable("lost")
        return super().run(*argv, **how)


def test_what_is_not_on_record_there_is_recorded_again(tmp_path: Path, here: Host) -> None:
    cut = Cut(tmp_path)
    host = ManagedHost("here", cut, BackupStore(tmp_path / "s"), "s", SERVICE_MANAGER)
    host.lock.lock()
    look = host._read_state

    def look_and_lose(*asked: Any) -> Any:
        answer = look(*asked)
        cut.cut = True
        return answer

    host._read_state = look_and_lose  # type: ignore[method-assign]
    with pytest.raises(HostUnreachable):
        host.back_up(tuned(tmp_path))
    cut.cut, host._read_state = False, look  # type: ignore[method-assign]
    host.back_up(tuned(tmp_path))
    assert host.read_backup_copy(BACKUP_FILE) == host.backup
    host.lock.unlock()


def test_a_record_on_a_host_describes_that_host_only(locked: Locked, tmp_path: Path) -> None:
    """Otherwise, root on one host could replace the controller's copy of another host."""
    host = locked("study")
    deploy(host, tuned(tmp_path))
    record = Path(BACKUP_FILE.replace(STATE_DIRECTORY, str(tmp_path / "autotune")))
    forged = replace(decode_backup(record.read_bytes(), "record"), host="other")
    record.write_bytes(encode_backup(forged))
    restore_orphaned(host)
    deploy(host, tuned(tmp_path))
    assert BackupStore(tmp_path / "studies" / "study").list_hosts() == ("here",)


def test_permissions_that_others_changed_are_named(locked: Locked, tmp_path: Path) -> None:
    mode = (tmp_path / "conf").stat().st_mode
    host = locked("study")
    deploy(host, tuned(tmp_path))
    (tmp_path / "conf").chmod(0o600)
    restore_host(host)
    assert (tmp_path / "conf").stat().st_mode == mode
    (note,) = host.notes
    assert f"replaced the mode, owner or ACL of {tmp_path / 'conf'}, which others had set" in note


def test_a_kernel_value_that_others_set_during_the_study_is_named(
    locked: Locked, tmp_path: Path
) -> None:
    host = locked("study")
    deploy(host, tuned(tmp_path))
    for found in ("Linux", "Other"):
        host.note_foreign_values({"kernel.ostype": "Tuned"}, {"kernel.ostype": found})
    assert host.notes == ["here: replaced kernel.ostype = Other, which others had set, with Tuned"]
