"""Disk of a lab host: an overlay of the host's own files on this machine's root file system, which
is shared read-only.

Lab hosts run this machine's software, but do not need this machine's users, keys, logs, data, crontabs
and enabled units. Only directories with software are visible on a host; their machine-specific
subdirectories are empty. A host starts only one unit, sshd, which the lab enables.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.lab import cgroups, keys
from autotune.lab.plan import LabHost, LabPlan

_LOWER_ROOT = Path("/")
_OPAQUE_XATTR = "trusted.overlay.opaque"  # Linux, Documentation/filesystems/overlayfs.rst
_COMPLETE_MARKER = "made"
# File next to a host's disk. The file exists if `autotune.lab.site` installed a site on the disk.
SITE_MARKER = "site"
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
# Top-level directories with software and settings. Hosts see no other directories of this machine.
SHARED_DIRECTORIES = frozenset(
    {"bin", "etc", "lib", "lib32", "lib64", "libx32", "opt", "sbin", "srv", "usr", "var"}
)
# Directories that exist on every system and are empty at boot, with their modes.
EMPTY_DIRECTORY_MODES = {
    "boot": 0o755, "dev": 0o755, "home": 0o755, "mnt": 0o755, "proc": 0o555, "root": 0o700,
    "run": 0o755, "sys": 0o555, "tmp": 0o1777,
}  # fmt: skip
# Subdirectories that hold this machine's own data, in directories that are otherwise shared. On hosts,
# these subdirectories are empty.
EMPTIED_DIRECTORIES = (
    "etc/cron.d", "etc/rc0.d", "etc/rc1.d", "etc/rc2.d", "etc/rc3.d", "etc/rc4.d", "etc/rc5.d",
    "etc/rc6.d", "etc/rcS.d", "etc/ssh", "etc/ssl/private", "etc/sysctl.d", "etc/systemd",
    "var/lib/containerd", "var/lib/containers", "var/lib/docker", "var/lib/libvirt",
    "var/lib/machines", "var/lib/mysql", "var/lib/postgresql", "var/lib/redis", "var/lib/snapd",
    "var/log", "var/mail", "var/spool/cron", "var/tmp",
)  # fmt: skip
# Directory with labs and their hosts' keys, hidden from every host even if it is created later.
HIDDEN_DIRECTORY = "var/lib/autotune"
# Units that are useless or fail in a container. Masking these units lets hosts boot quickly and
# without failures.
MASKED_UNITS = (
    "apparmor.service", "console-getty.service", "dev-hugepages.mount", "getty.target",
    "kmod-static-nodes.service", "lvm2-lvmpolld.socket", "lvm2-monitor.service",
    "plymouth-quit-wait.service", "plymouth-quit.service", "plymouth-read-write.service",
    "plymouth-start.service", "proc-sys-fs-binfmt_misc.automount",
    "sys-fs-fuse-connections.mount", "sys-kernel-config.mount", "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount", "systemd-binfmt.service", "systemd-firstboot.service",
    "systemd-logind.service", "systemd-modules-load.service", "systemd-networkd.service",
    "systemd-random-seed.service", "systemd-remount-fs.service", "systemd-repart.service",
    "systemd-resolved.service", "systemd-timesyncd.service", "systemd-tmpfiles-clean.timer",
    "systemd-udevd.service", "systemd-update-utmp.service", "tmp.mount",
)  # fmt: skip
# systemd generators for disks, consoles and kernel options. A lab host needs no such generator, but
# without masks all of them would run at boot and at every `systemctl daemon-reload`. Each generator is
# masked by a symlink to /dev/null (systemd.generator(7)).
MASKED_GENERATORS = (
    "systemd-bless-boot-generator", "systemd-cryptsetup-generator", "systemd-debug-generator",
    "systemd-fstab-generator", "systemd-getty-generator", "systemd-gpt-auto-generator",
    "systemd-hibernate-resume-generator", "systemd-integritysetup-generator",
    "systemd-rc-local-generator", "systemd-run-generator", "systemd-ssh-generator",
    "systemd-system-update-generator", "systemd-tpm2-generator", "systemd-veritysetup-generator",
)  # fmt: skip
_SSHD_CONFIG = """\
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
PrintMotd no
UseDNS no
MaxSessions 64
MaxStartups 64:30:128
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class EmptyDirectory:
    """A directory that hides this machine's content at the same path from a lab host."""

    path: str
    mode: int
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class DiskFile:
    path: str
    content: str
    mode: int = 0o644


@dataclass(frozen=True)
class DiskLink:
    path: str
    target: str


@dataclass(frozen=True)
class AbsentPath:
    """A path that exists on this machine but is hidden from a host."""

    path: str


DiskEntry = EmptyDirectory | DiskFile | DiskLink | AbsentPath


@dataclass(frozen=True)
class HostKeys:
    """A host's key pair, and the public key that may be used to log in to the host."""

    private: str
    public: str
    authorized: str


def make_disk(plan: LabPlan, host: LabHost) -> None:
    """Create the disk of ``host``. A disk that was made after this machine booted is kept."""
    directory = plan.names.get_machine_directory(host.name)
    boot_id = _BOOT_ID_FILE.read_text(encoding="ascii")
    marker_path = directory / _COMPLETE_MARKER
    if marker_path.exists() and marker_path.read_text(encoding="ascii") == boot_id:
        # A volatile overlay refuses a second mount, because a crash of the machine may have lost
        # writes. This machine has not rebooted since the disk was made, and stopping a host loses no
        # writes.
        shutil.rmtree(directory / "work" / "work" / "incompat", ignore_errors=True)
        return
    (directory / SITE_MARKER).unlink(missing_ok=True)
    for subdirectory in ("upper", "work", "root"):
        if (directory / subdirectory).exists():
            shutil.rmtree(directory / subdirectory)
        (directory / subdirectory).mkdir(parents=True)
    private_key = directory / keys.HOST_KEY_NAME
    host_keys = HostKeys(
        private_key.read_text(encoding="ascii"),
        keys.read_public_key(private_key),
        keys.read_public_key(plan.names.key),
    )
    write_disk_entries(
        directory / "upper", list_root_entries(plan, host, host_keys, _LOWER_ROOT), _LOWER_ROOT
    )
    marker_path.write_text(boot_id, encoding="ascii")


def write_disk_entries(
    upper_root: Path, disk_entries: Iterable[DiskEntry], lower_root: Path
) -> None:
    """Write ``disk_entries`` into ``upper_root``. Parent directories get their owner and mode from
    ``lower_root``.
    """
    upper_root.chmod(0o755)
    for disk_entry in disk_entries:
        path = upper_root / disk_entry.path
        _create_parents(upper_root, path.parent, lower_root)
        match disk_entry:
            case EmptyDirectory(mode=mode, uid=uid, gid=gid):
                path.mkdir(exist_ok=True)
                path.chmod(mode)
                os.chown(path, uid, gid)
                os.setxattr(path, _OPAQUE_XATTR, b"y")
            case DiskFile(content=content, mode=mode):
                path.write_text(content, encoding="utf-8")
                path.chmod(mode)
            case DiskLink(target=link_target):
                path.symlink_to(link_target)
            case AbsentPath():
                os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def require_single_filesystem(mountinfo_text: str) -> None:
    """Raise ``AutotuneError`` if the system's software spans several file systems.

    An overlay covers only one file system, so a host's /usr would be empty.
    """
    needed_directories = {Path("/usr"), Path("/etc"), Path("/var"), Path("/var/lib")}
    mounted_directories = sorted(
        str(mount.path)
        for mount in cgroups.parse_mounts(mountinfo_text)
        if mount.path in needed_directories
    )
    if mounted_directories:
        raise AutotuneError(
            f"cannot create a lab: {', '.join(mounted_directories)} must be on the filesystem of /, which"
            " the hosts share",
            hint="use a physical or virtual machine with one filesystem for the system",
        )


def _create_parents(upper_root: Path, directory: Path, lower_root: Path) -> None:
    if directory == upper_root or directory.exists():
        return
    _create_parents(upper_root, directory.parent, lower_root)
    directory.mkdir()
    lower_directory = lower_root / directory.relative_to(upper_root)
    if lower_directory.exists():
        directory_status = lower_directory.stat()
        directory.chmod(stat.S_IMODE(directory_status.st_mode))
        os.chown(directory, directory_status.st_uid, directory_status.st_gid)


def list_root_entries(
    plan: LabPlan, host: LabHost, host_keys: HostKeys, lower_root: Path
) -> list[DiskEntry]:
    """Return the overlay entries that turn ``lower_root`` into the root file system of ``host``, parents
    before children.
    """
    return [
        *_list_hidden_entries(lower_root),
        *_list_lab_entries(plan),
        *_list_identity_entries(plan, host, host_keys),
        *_list_boot_entries(lower_root),
    ]


def _list_lab_entries(plan: LabPlan) -> Iterator[DiskEntry]:
    """Yield an entry that hides the lab's directory on this machine from the lab's hosts."""
    lab_path = plan.names.directory.relative_to("/")
    if lab_path.parts[0] in SHARED_DIRECTORIES and not lab_path.is_relative_to(HIDDEN_DIRECTORY):
        yield EmptyDirectory(str(lab_path), 0o700)


def _list_hidden_entries(lower_root: Path) -> Iterator[DiskEntry]:
    for lower_path in sorted(lower_root.iterdir()):
        if (
            lower_path.name not in SHARED_DIRECTORIES
            and lower_path.name not in EMPTY_DIRECTORY_MODES
        ):
            yield AbsentPath(lower_path.name)
    for name, mode in EMPTY_DIRECTORY_MODES.items():
        yield EmptyDirectory(name, mode)
    for path in EMPTIED_DIRECTORIES:
        if (lower_root / path).is_dir():
            yield _build_emptied_directory(lower_root, lower_root / path)
    yield AbsentPath(HIDDEN_DIRECTORY)
    # Services fail to start without their log directory.
    for lower_path in sorted((lower_root / "var/log").glob("*/")):
        if lower_path.name != "journal" and not lower_path.is_symlink():
            yield _build_emptied_directory(lower_root, lower_path)


def _build_emptied_directory(lower_root: Path, existing_directory: Path) -> EmptyDirectory:
    directory_status = existing_directory.stat()
    relative_path = str(existing_directory.relative_to(lower_root))
    return EmptyDirectory(
        relative_path,
        stat.S_IMODE(directory_status.st_mode),
        directory_status.st_uid,
        directory_status.st_gid,
    )


def _list_identity_entries(
    plan: LabPlan, host: LabHost, host_keys: HostKeys
) -> Iterator[DiskEntry]:
    yield DiskFile("etc/hostname", f"{host.name}\n")
    yield DiskFile("etc/hosts", format_hosts_file(plan))
    # No DNS server listens at this address, so lookups fail immediately. The line must exist,
    # because programs with libevent's resolver refuse to start without an address.
    yield DiskFile(
        "etc/resolv.conf",
        "# Lab hosts resolve only the names in /etc/hosts.\nnameserver 127.0.0.1\n",
    )
    yield DiskFile("etc/fstab", "")
    yield DiskFile("etc/crypttab", "")
    yield DiskFile("etc/sysctl.conf", "")
    yield DiskFile("etc/machine-id", derive_machine_id(plan, host) + "\n", 0o444)
    yield DiskFile("etc/ssh/sshd_config", _SSHD_CONFIG)
    yield DiskFile("etc/ssh/ssh_host_ed25519_key", host_keys.private, 0o600)
    yield DiskFile("etc/ssh/ssh_host_ed25519_key.pub", host_keys.public + "\n")
    yield EmptyDirectory("root/.ssh", 0o700)
    yield DiskFile("root/.ssh/authorized_keys", host_keys.authorized + "\n", 0o600)


def _list_boot_entries(lower_root: Path) -> Iterator[DiskEntry]:
    for pam_path in ("etc/pam.d/common-session", "etc/pam.d/sshd"):
        if (lower_root / pam_path).exists():
            yield DiskFile(pam_path, adapt_pam_service((lower_root / pam_path).read_text("utf-8")))
    system_units = Path("/usr/lib/systemd/system")
    unit_directory = "etc/systemd/system"
    ssh_unit = (
        "ssh" if (lower_root / system_units.relative_to("/") / "ssh.service").exists() else "sshd"
    )
    yield EmptyDirectory(unit_directory, 0o755)
    yield EmptyDirectory(f"{unit_directory}/multi-user.target.wants", 0o755)
    yield DiskLink(f"{unit_directory}/default.target", str(system_units / "multi-user.target"))
    yield DiskLink(
        f"{unit_directory}/multi-user.target.wants/{ssh_unit}.service",
        str(system_units / f"{ssh_unit}.service"),
    )
    for unit in MASKED_UNITS:
        yield DiskLink(f"{unit_directory}/{unit}", "/dev/null")
    yield EmptyDirectory("etc/systemd/system-generators", 0o755)
    for generator in MASKED_GENERATORS:
        yield DiskLink(f"etc/systemd/system-generators/{generator}", "/dev/null")


def adapt_pam_service(pam_text: str) -> str:
    """Return a PAM service without the modules that need logind or run scripts for the message of
    the day.

    logind is masked on lab hosts.
    """
    pam_lines = pam_text.splitlines(keepends=True)
    return "".join(
        line for line in pam_lines if "pam_systemd.so" not in line and "pam_motd.so" not in line
    )


def format_hosts_file(plan: LabPlan) -> str:
    """Return the ``/etc/hosts`` file with all lab hosts, and with this machine as
    ``controller``.
    """
    hosts_lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    hosts_lines += [f"{host.address} {host.name}" for host in plan.hosts]
    hosts_lines.append(f"{plan.gateway} controller")
    return "\n".join(hosts_lines) + "\n"


def derive_machine_id(plan: LabPlan, host: LabHost) -> str:
    """Return a machine ID that is unique to the host (machine-id(5): 32 hexadecimal digits)."""
    return hashlib.sha256(f"{plan.names.tag}/{host.name}".encode()).hexdigest()[:32]
