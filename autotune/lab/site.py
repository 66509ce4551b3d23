"""Install the application of a target on the hosts of its lab, as an administrator would.

A study's deployment code writes files, units and data once. Afterwards, the files belong to the
hosts, and a study edits them in place as on any other host. `templates/lab` contains the files that
an administrator would write differently from a study's templates, which list every value.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

from autotune.deploy.managed_hosts import ManagedHosts
from autotune.environments.stack import ignore_stop_signals, prepare
from autotune.lab.disk import SITE_MARKER
from autotune.lab.plan import LabNames
from autotune.services.base import Role
from autotune.target.model import Target
from autotune.target.read_target import TargetFile
from autotune.target.shipped_files import find_shipped_directory


def deploy_site(target_file: TargetFile, lab_names: LabNames) -> bool:
    """Install a target's site on the lab's hosts. Return true if anything changed.

    The target's studies edit the site's files. Targets that replace files, have no application or
    have hosts outside the lab are skipped. After a failure, the hosts are restored and
    AutotuneError is raised.
    """
    target = target_file.target
    host_names = {host for tier in target.tiers.values() for host in tier.hosts}
    has_edited_files = any(
        tier.app and target.edits_host_files(name) for name, tier in target.tiers.items()
    )
    if not has_edited_files or any(target.hosts[host].transport != "ssh" for host in host_names):
        return False
    marker_paths = [lab_names.get_machine_directory(host) / SITE_MARKER for host in host_names]
    site_digest = _compute_site_digest(target)
    if all(
        marker_path.exists() and marker_path.read_text(encoding="ascii") == site_digest
        for marker_path in marker_paths
    ):
        return False
    _deploy_baseline(_build_site_target(target_file, lab_names))
    for marker_path in marker_paths:
        marker_path.write_text(site_digest, encoding="ascii")
    return True


def _compute_site_digest(target: Target) -> str:
    """Return a digest of the hosts, tiers, data and parameters in a target, which identifies the
    target's site.
    """
    target_json = target.model_dump_json(include={"hosts", "tiers", "data", "parameters"})
    return hashlib.sha256(target_json.encode()).hexdigest()


def _build_site_target(target_file: TargetFile, lab_names: LabNames) -> TargetFile:
    """Return the target that installs the site on empty hosts, with the lab's SSH configuration."""
    template_update = {"templates": str(find_shipped_directory("templates/lab"))}
    tiers = {
        name: t.model_copy(update=template_update) for name, t in target_file.target.tiers.items()
    }
    ssh_settings = target_file.target.ssh.model_copy(update={"config": str(lab_names.ssh_config)})
    return replace(
        target_file,
        target=target_file.target.model_copy(update={"tiers": tiers, "ssh": ssh_settings}),
    )


def _deploy_baseline(target_file: TargetFile) -> None:
    """Deploy the baseline permanently, and delete the backups from the hosts."""
    environment = prepare(target_file)
    with tempfile.TemporaryDirectory(prefix="autotune-lab-") as directory:
        fleet = environment.create_deployment(Path(directory, "lab-up"), lambda _: None)
        managed_hosts = fleet.hosts
        assert isinstance(managed_hosts, ManagedHosts)
        # Kernel settings and limits keep the hosts' own values.
        instances = (
            instance
            for instance in fleet.stack.instances
            if instance.placement.role is not Role.HOST
        )
        fleet.stack = replace(fleet.stack, instances=tuple(instances))
        try:
            fleet.lock_hosts()
            fleet.deploy(environment.space.build_candidate({}).settings)
            fleet.keep_deployed()
            managed_hosts.run_on_hosts(
                fleet.stack.hosts, lambda host: host.delete_backups()
            ).unwrap()
        finally:
            with ignore_stop_signals():
                fleet.restore()
            for transport in environment.transports.values():
                transport.close()
