"""Make templates from the files on a target's hosts, like `autotune init --from`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any

from autotune.config_text import escape_non_utf8
from autotune.deploy import adopted_files
from autotune.deploy.runtime import Runtime
from autotune.discovery import tier_adoption as adoption
from autotune.discovery.effective_values import read_effective_values
from autotune.discovery.host_reading import (
    DiscoveredHost,
    list_config_paths,
    read_host,
    read_isolated_host,
)
from autotune.discovery.tier_adoption import AdoptedTier
from autotune.discovery.tiers import (
    DiscoveredInstance,
    DiscoveredTier,
    find_instances,
    list_unread,
    list_untuned_listeners,
)
from autotune.errors import AutotuneError, TargetError
from autotune.parameter_name import ParameterName
from autotune.services.base import AdoptedConfig, Settings
from autotune.services.registry import catalogue_of, choice_name
from autotune.space.dimension import AdoptedValues
from autotune.target.model import Tier
from autotune.target.read_target import TargetFile
from autotune.transports.base import SshHost, Transport
from autotune.transports.parallel_hosts import run_on_all

CORRECT_FILES_HINT = "fix the problems above. Until then, autotune does not change those files"
REPLACE_FILES_HINT = "or set `replace: true` in the tier to let autotune write complete files"
CONTAINER_FILES_HINT = (
    "autotune edits a container's files at the distribution's paths; declare a service with other paths "
    "under `services:`"
)


@dataclass(frozen=True)
class HostTemplates:
    """Templates of the hosts' files, by instance name, and the values in the hosts' files.

    ``notes`` contains a line for each unreadable file, and for each service that belongs to no
    tier.
    """

    adopted_configs: Mapping[str, AdoptedConfig] = field(default_factory=dict)
    adopted_values: AdoptedValues = field(default_factory=AdoptedValues)
    notes: tuple[str, ...] = ()

    @property
    def skipped_lines(self) -> tuple[str, ...]:
        """Return the notes, then a line for each reason why parameters are not tuned."""
        parameters_by_reason: dict[tuple[str, str], list[str]] = {}
        for full_name, reason in self.adopted_values.skipped.items():
            parameter_name = ParameterName.parse(full_name)
            parameters_by_reason.setdefault((parameter_name.service_prefix, reason), []).append(
                parameter_name.parameter
            )
        untuned_lines = (
            f"{service}: {', '.join(parameters)} not tuned ({skip_reason})"
            for (service, skip_reason), parameters in parameters_by_reason.items()
        )
        return (*self.notes, *untuned_lines)

    def without_parameters(self, reasons: Mapping[str, str]) -> HostTemplates:
        """Return the templates without the parameters in ``reasons``, which are then not tuned.
        ``reasons`` maps full parameter names to reasons.
        """
        skipped_reasons = {**self.adopted_values.skipped, **reasons}
        return replace(self, adopted_values=replace(self.adopted_values, skipped=skipped_reasons))

    def with_kernel_values(self, kernel_values: Settings) -> HostTemplates:
        """Return the templates with kernel values of the hosts, which a resumed study uses."""
        values = {**self.adopted_values.values, **kernel_values}
        return replace(self, adopted_values=replace(self.adopted_values, values=values))

    @property
    def to_record(self) -> dict[str, Any]:
        """Return the templates as a record for a study's journal, which a resumed study uses."""
        return {
            "own": adopted_files.build_record(self.adopted_configs),
            "values": dict(self.adopted_values.values),
            "left": dict(self.adopted_values.skipped),
            "notes": list(self.notes),
        }


def from_record(record: Mapping[str, Any]) -> HostTemplates:
    """Return the templates in a record from `HostTemplates.to_record`. The result is empty for a
    study that replaced whole files.
    """
    if not record:
        return HostTemplates()
    try:
        adopted_values = AdoptedValues(dict(record["values"]), dict(record["left"]))
        return HostTemplates(
            adopted_files.parse_record(record["own"]), adopted_values, tuple(record["notes"])
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AutotuneError(
            f"cannot read the study's record of the hosts' files: {error}",
            hint="start a new study with `autotune run`",
        ) from error


def read_host_templates(
    file: TargetFile, transports: Mapping[str, Transport], runtime: Runtime
) -> HostTemplates:
    """Read the files of every tier whose files are edited, and return templates. No host is changed.

    Raises TargetError if a host does not run the services that the target declares.
    """
    tiers = _list_edited_tiers(file)
    if runtime.layout.isolated:
        return build_host_templates(
            file,
            {},
            {name: _read_isolated_hosts(file, name, transports, runtime) for name in tiers},
        )
    names = dict.fromkeys(host for tier in tiers.values() for host in tier.hosts)
    hosts = run_on_all(
        [transports[name] for name in names], lambda transport: _read_host(file, transport)
    ).unwrap()
    return build_host_templates(file, hosts)


def _list_edited_tiers(file: TargetFile) -> dict[str, Tier]:
    return {
        name: tier for name, tier in file.target.tiers.items() if file.target.edits_host_files(name)
    }


def build_host_templates(
    file: TargetFile,
    hosts: Mapping[str, DiscoveredHost],
    isolated_hosts: Mapping[str, Mapping[str, DiscoveredHost]] | None = None,
) -> HostTemplates:
    """Return templates of the files that were read from hosts.

    ``isolated_hosts`` maps each tier to its hosts, with the files inside the tier's containers. Raises
    the errors of `read_host_templates`.
    """
    tiers = isolated_hosts or {}
    adopted_tiers = [
        adoption.adopt_tier(_find_tier(file, name, tiers.get(name, hosts)), tier.runtime)
        for name, tier in _list_edited_tiers(file).items()
    ]
    for adopted_tier in adopted_tiers:
        adoption.check_templates(adopted_tier)
    unread_lines = (
        f"{host}: {path}: {reason}"
        for adopted_tier in adopted_tiers
        for host, path, reason in _list_unread_files(adopted_tier)
    )
    return HostTemplates(
        {
            instance_name: _embed_templates(file, instance_name, config, adopted_tier)
            for adopted_tier in adopted_tiers
            for instance_name, config in adopted_tier.adopted_configs.items()
        },
        _collect_values(file, adopted_tiers),
        tuple(dict.fromkeys((*unread_lines, *_list_untuned(hosts, adopted_tiers)))),
    )


def _list_untuned(
    hosts: Mapping[str, DiscoveredHost], adopted_tiers: Sequence[AdoptedTier]
) -> Iterator[str]:
    """Yield a line for each service or listener on the hosts that does not belong to a tier in the
    target.
    """
    tuned_instances = {
        (i.host.name, i.deployment, i.port)
        for adopted_tier in adopted_tiers
        for i in adopted_tier.discovered_tier.instances
    }
    running_by_host = {host_name: find_instances(host) for host_name, host in hosts.items()}
    yield from list_untuned_listeners(
        (hosts[host_name], running_instances)
        for host_name, (running_instances, _) in running_by_host.items()
    )
    for host_name, (running_instances, notes) in running_by_host.items():
        yield from notes
        for instance in running_instances:
            if (host_name, instance.deployment, instance.port) not in tuned_instances:
                yield f"{host_name}: {instance.deployment} on port {instance.port} belongs to no tier"


def _read_host(file: TargetFile, transport: Transport) -> DiscoveredHost:
    """Read a host of the target with its effective values."""
    host_name = transport.name
    ssh_host = SshHost(host_name, file.target.hosts[host_name].address)
    host = read_host(transport, ssh_host, catalogue_of(file.target))
    return read_effective_values(transport, replace(host, name=host_name))


def _read_isolated_hosts(
    file: TargetFile, tier: str, transports: Mapping[str, Transport], runtime: Runtime
) -> dict[str, DiscoveredHost]:
    """Return the hosts of a tier, with the files inside the tier's containers."""
    service_manager, tier_model = runtime.service_manager, file.target.tiers[tier]
    assert service_manager is not None
    catalogue = catalogue_of(file.target)
    paths = list_config_paths(tier_model.service, catalogue)

    def read_tier_host(transport: Transport) -> DiscoveredHost:
        archive_command = runtime.build_archive_command(file.target, tier, paths)
        host = SshHost(transport.name, file.target.hosts[transport.name].address)
        return read_isolated_host(
            transport,
            host,
            tier_model.service,
            paths,
            archive_command,
            service_manager.shell_functions,
            catalogue,
        )

    return run_on_all([transports[name] for name in tier_model.hosts], read_tier_host).unwrap()


def _find_tier(
    file: TargetFile, tier_name: str, hosts: Mapping[str, DiscoveredHost]
) -> DiscoveredTier:
    """Find the services of a tier on its hosts, and return the tier. Raises TargetError."""
    tier = DiscoveredTier(
        tier_name,
        tuple(
            _find_instance(file, tier_name, hosts[host])
            for host in file.target.tiers[tier_name].hosts
        ),
    )
    deployments = {i.deployment: i.host.name for i in tier.instances}
    if len(deployments) > 1:
        deployments_text = ", ".join(f"{host} runs {runs}" for runs, host in deployments.items())
        raise _build_mismatch_error(
            file,
            tier_name,
            f"tier {tier_name}: {deployments_text}",
            "split the tier, " + REPLACE_FILES_HINT,
        )
    return tier


def _find_instance(file: TargetFile, tier_name: str, host: DiscoveredHost) -> DiscoveredInstance:
    """Return the running deployment on ``host`` that the tier declares. Among several deployments,
    deployments on the tier's port come first.
    """
    tier = file.target.tiers[tier_name]
    running_instances, notes = find_instances(host)
    matching_instances = [
        instance for instance in running_instances if instance.deployment in tier.service
    ]
    if not matching_instances:
        unread_services = _list_unread_services(tier, host)
        running_text = ", ".join(instance.deployment for instance in running_instances)
        missing_text = f"no editable {' or '.join(tier.service)}"
        message = (
            f"{host.name} runs {f'{running_text}, but ' if running_text else ''}{missing_text}"
        )
        hint = CORRECT_FILES_HINT if unread_services else "start it, " + REPLACE_FILES_HINT
        hint = CONTAINER_FILES_HINT if tier.isolated else hint
        raise _build_mismatch_error(
            file, tier_name, "\n".join([message, *dict.fromkeys((*notes, *unread_services))]), hint
        )
    default_ports = host.catalogue.deployment_ports
    matching_instances.sort(
        key=lambda i: (
            i.port != (tier.port or default_ports[i.deployment]),
            tier.service.index(i.deployment),
        )
    )
    chosen_instance = matching_instances[0]
    if tier.port is None and chosen_instance.port != default_ports[chosen_instance.deployment]:
        message = (
            f"{host.name}: {chosen_instance.deployment} listens on port {chosen_instance.port}"
        )
        raise _build_mismatch_error(
            file, tier_name, message, f"set `port: {chosen_instance.port}` in the tier"
        )
    return chosen_instance


def _list_unread_services(tier: Tier, host: DiscoveredHost) -> list[str]:
    """Return a line for each file or unit of a tier's services that could not be read."""
    catalogue = host.catalogue
    adoptions = catalogue.map_adoptions()
    services = (service for name in tier.service for service, _ in catalogue.services_of(name))
    service_keys = dict.fromkeys(service.key for service in services)
    relevant_adoptions = [adoptions[key] for key in service_keys if key in adoptions]
    active_units = (
        unit
        for unit in host.units
        if host.is_active(unit)
        and any(fnmatch(unit, name) for each in relevant_adoptions for name in each.units)
    )
    unread_lines = [line for adoption in relevant_adoptions for line in list_unread(host, adoption)]
    if tier.isolated:  # a container has no units
        return [
            *unread_lines,
            f"{host.name}: the container contains no configuration files that autotune can read",
        ]
    return [
        *unread_lines,
        *(
            f"{host.name}: {unit} is running, but its files could not be read"
            for unit in active_units
        ),
    ]


def _build_mismatch_error(file: TargetFile, tier_name: str, message: str, hint: str) -> TargetError:
    return file.document.build_error(["tiers", tier_name, "service"], message, hint=hint)


def _collect_values(file: TargetFile, tiers: list[AdoptedTier]) -> AdoptedValues:
    choices = {
        choice_name(tier.discovered_tier.name): tier.discovered_tier.deployment
        for tier in tiers
        if len(file.target.tiers[tier.discovered_tier.name].service) > 1
    }
    baseline_values = {
        f"{tier.discovered_tier.name}.{key}": v
        for tier in tiers
        for key, v in tier.baseline_values.items()
    }
    skipped_reasons = {
        f"{tier.discovered_tier.name}.{key}": v for tier in tiers for key, v in tier.skipped.items()
    }
    return AdoptedValues({**choices, **baseline_values}, skipped_reasons)


def _embed_templates(
    file: TargetFile, instance_name: str, config: AdoptedConfig, tier: AdoptedTier
) -> AdoptedConfig:
    is_choice = len(file.target.tiers[tier.discovered_tier.name].service) > 1
    host_files = _map_host_files(tier).get(instance_name, {})
    template_files = tuple(
        replace(
            config_file,
            text=tier.templates[config_file.template],
            digest=_compute_digest(host_files.get(config_file.path)),
        )
        for config_file in config.files
    )
    return replace(
        config,
        files=template_files,
        deployment=tier.discovered_tier.deployment if is_choice else "",
    )


def _map_host_files(tier: AdoptedTier) -> dict[str, Mapping[str, bytes]]:
    """Return the files of each instance's host, by instance name."""
    return {
        f"{tier.discovered_tier.name}.{instance.host.name}.{service}": instance.host.tree.files
        for instance in tier.discovered_tier.instances
        for service in instance.services
    }


def _compute_digest(content: bytes | None) -> str:
    """Return the digest of a file that the host already has, or an empty text."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _list_unread_files(tier: AdoptedTier) -> Iterator[tuple[str, str, str]]:
    for instance in tier.discovered_tier.instances:
        for config in instance.configs.values():
            for path, reason in config.unread_files.items():
                yield instance.host.name, escape_non_utf8(path), escape_non_utf8(reason)
