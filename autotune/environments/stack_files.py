"""Validate and read the configuration files of a stack with the software on its hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePath

from autotune import foreign_files
from autotune.deploy import adopted_files
from autotune.deploy.desired_state import DesiredState, build_desired_state, render_files
from autotune.deploy.runtime import InvalidConfiguration, Runtime
from autotune.deploy.stack import ServiceInstance, Stack
from autotune.errors import AutotuneError
from autotune.parameter_name import ParameterName
from autotune.services.base import Settings, Value
from autotune.space.space import SearchSpace
from autotune.strict_parsing import split_lines
from autotune.target.read_target import TargetFile
from autotune.transports.base import Transport
from autotune.transports.parallel_hosts import run_on_all

SettingsValidator = Callable[[ServiceInstance, Sequence[Settings]], Sequence[str | None]]
"""Returns the software's one-line error, or ``None``, for each of several settings of an instance."""


@dataclass(frozen=True)
class StackFiles:
    """The files of a target's instances, and the hosts whose software reads them."""

    file: TargetFile
    runtime: Runtime
    transports: Mapping[str, Transport]

    def render(self, instance: ServiceInstance, settings: Settings) -> dict[str, bytes]:
        """Return the content of an instance's files by path. Raises RenderError."""
        return render_instance(self.file, instance, settings)

    def build_desired_state(self, stack: Stack, settings: Settings) -> DesiredState:
        def render_with_settings(instance: ServiceInstance) -> dict[str, bytes]:
            return self.render(instance, settings)

        return build_desired_state(settings, stack, render_with_settings, self.runtime.layout)

    def validate_host_states(self, states: Iterable[DesiredState]) -> None:
        """Validate each distinct set of files once, in one round trip per host.

        If software rejects an instance's files, raises InvalidConfiguration with the instance and the
        software's message.
        """
        cases_by_host: dict[str, dict[object, tuple[ServiceInstance, Mapping[str, bytes]]]] = {}
        for instance, files in (
            (p, state.rendered_files[p.name]) for state in states for p in state.instances
        ):
            if files:
                case_key = (instance.name, *sorted(files.items()))
                cases_by_host.setdefault(instance.placement.host, {})[case_key] = (instance, files)

        def validate(host: Transport) -> None:
            host_cases = [*cases_by_host[host.name].values()]
            refusals = self.runtime.find_validation_errors(host, host_cases)
            for (failed_instance, _), message in zip(host_cases, refusals, strict=True):
                if message is not None:
                    raise InvalidConfiguration(f"{failed_instance.name}: {message}")

        run_on_all([self.transports[host] for host in cases_by_host], validate).unwrap()

    def read_values(
        self, cases: Sequence[tuple[ServiceInstance, Settings]]
    ) -> list[Mapping[str, Value]]:
        """Render the files of each case, and return the values that the software reads from them."""
        indexes_by_host: dict[str, list[int]] = {}
        for index, (instance, _) in enumerate(cases):
            indexes_by_host.setdefault(instance.placement.host, []).append(index)
        values_by_case: list[Mapping[str, Value]] = [{} for _ in cases]

        def read(host: Transport) -> None:
            indexes = indexes_by_host[host.name]
            rendered_files = [
                (instance, self.render(instance, settings))
                for instance, settings in (cases[index] for index in indexes)
            ]
            for index, own_values in zip(
                indexes, self.runtime.read_file_values(host, rendered_files), strict=True
            ):
                values_by_case[index] = own_values

        run_on_all([self.transports[host] for host in indexes_by_host], read).unwrap()
        return values_by_case

    def find_validation_errors(
        self, instance: ServiceInstance, candidates: Sequence[Settings]
    ) -> list[str | None]:
        """Return, for each of ``candidates``, the validation error of the instance's software, or
        ``None``.
        """
        validation_cases = [(instance, self.render(instance, settings)) for settings in candidates]
        messages = self.runtime.find_validation_errors(
            self.transports[instance.placement.host], validation_cases
        )
        return [message and split_lines(message)[0] for message in messages]


def find_template_overrides(file: TargetFile) -> Path | None:
    """Return the directory with templates that override autotune's own templates. Raises
    AutotuneError.
    """
    template_directories = {tier.templates for tier in file.target.tiers.values() if tier.templates}
    if len(template_directories) > 1:
        raise AutotuneError(
            "all tiers must share one `templates:` directory",
            hint="name the same directory in each tier",
        )
    return (file.directory / template_directories.pop()).resolve() if template_directories else None


def compute_template_digests(file: TargetFile) -> dict[str, str]:
    """Return SHA-256 digests of the user's templates, by path relative to the target. Raises
    AutotuneError for an unreadable template.
    """
    root = find_template_overrides(file)
    if root is None:
        return {}
    declared_files = (f for s in file.target.services.values() for f in s.files.values())
    names = {
        adopted_files.ADOPTED_FILE,
        *(declared_file.template for declared_file in declared_files if declared_file.template),
        *(str(path.relative_to(root)) for path in root.rglob("*.j2")),
    }
    directory = next(tier.templates for tier in file.target.tiers.values() if tier.templates)
    return {
        str(PurePath(directory, name)): _compute_digest(root / name)
        for name in sorted(names)
        if (root / name).is_file()
    }


def _compute_digest(path: Path) -> str:
    try:
        content = foreign_files.read_named_file(path, foreign_files.MAX_RECORD_BYTES)
    except OSError as error:
        hint = "make the file readable, or move it out of the directory"
        raise AutotuneError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    return sha256(content).hexdigest()


def render_instance(
    file: TargetFile, instance: ServiceInstance, settings: Settings
) -> dict[str, bytes]:
    """Return the content of an instance's files by path. Raises RenderError."""
    return render_files(
        instance.service,
        instance.placement,
        settings,
        file.target.data,
        find_template_overrides(file),
    )


def exclude_rejected_choices(
    space: SearchSpace,
    instances: Sequence[ServiceInstance],
    find_validation_errors: SettingsValidator,
) -> tuple[SearchSpace, tuple[str, ...]]:
    """Return the space without the choices that the installed program on any host does not support.

    The second part of the result contains a line for each parameter with removed choices.
    """
    remaining_space, excluded_lines = space, list(space.excluded)
    for dimension in space.tunable_dimensions:
        choices = [choice for choice in dimension.choices if choice != dimension.baseline]
        if not choices or not dimension.parameter.built_in:
            continue
        settings = [space.build_candidate({dimension.name: choice}).settings for choice in choices]
        rejected_choices: dict[Value, str] = {}
        for instance in _select_owners(instances, dimension.name):
            messages = find_validation_errors(instance, settings)
            for choice, message in zip(choices, messages, strict=True):
                if message:
                    rejected_choices.setdefault(choice, f"{instance.placement.host}: {message}")
        for choice in rejected_choices:
            remaining_space = remaining_space.without_choice(dimension.name, choice)
        if rejected_choices:
            choice_names, message = (
                ", ".join(map(str, rejected_choices)),
                next(iter(rejected_choices.values())),
            )
            excluded_lines.append(
                f"{dimension.name}: the program does not support {choice_names} ({message})"
            )
    return remaining_space, tuple(excluded_lines)


def _select_owners(
    instances: Sequence[ServiceInstance], parameter_name: str
) -> Sequence[ServiceInstance]:
    """Return the first instance on each host to which a parameter belongs."""
    owner_prefix = ParameterName.parse(parameter_name).service_prefix
    owners: dict[str, ServiceInstance] = {}
    for instance in instances:
        if instance.parameter_prefix == owner_prefix:
            owners.setdefault(instance.placement.host, instance)
    return list(owners.values())
