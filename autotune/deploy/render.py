"""Settings and a site in, the exact bytes of its files out. Pure but for reading templates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import FileSystemLoader, StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel

from autotune.errors import AutotuneError
from autotune.services.base import Service, Settings, Site, Value, config_files
from autotune.target.model import Data
from autotune.target.shipped import shipped


class RenderError(AutotuneError):
    """A template is missing, broken, or asks for a value that does not exist."""


def shipped_templates() -> Path:
    """Where autotune's own templates are: in the installed package, or in the checkout."""
    return shipped("templates")


class _Sandbox(ImmutableSandboxedEnvironment):
    """A target's templates may come from anybody: they fill in values and call nothing of ours."""

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        # Models have methods that read files, and that unpickle what they are given.
        model = isinstance(obj, BaseModel) and callable(value)
        return not model and super().is_safe_attribute(obj, attr, value)


@cache
def _environment(directories: tuple[Path, ...]) -> _Sandbox:
    # Configuration files are no HTML: escaping would corrupt them.
    environment = _Sandbox(
        loader=FileSystemLoader([str(directory) for directory in directories]),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["onoff"] = lambda value: "on" if value else "off"
    environment.filters["yesno"] = lambda value: "yes" if value else "no"
    return environment


def of_text(template: str, values: Mapping[str, object]) -> str:
    """What a template comes to, as deployments read it: for one that is not in a file yet."""
    return _environment(()).from_string(template).render(values)


def render(
    service: Service,
    site: Site,
    settings: Settings,
    data: Data,
    overrides: Path | None = None,
) -> dict[str, bytes]:
    """The files of one service on one site: path relative to the site → content.

    ``settings`` are the whole study's; the template sees its own service's by their bare names, and
    those of the services beside it in the tier as ``beside.SERVICE.NAME``.
    ``overrides`` is the user's template directory, looked into before the shipped ones. Raises
    RenderError.
    """
    prefix = f"{site.tier}.{service.name}."
    own = {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}
    beside = _by_service(site.tier, settings)
    directories = (*((overrides,) if overrides else ()), shipped_templates())
    environment = _environment(directories)
    rendered: dict[str, bytes] = {}
    for file in config_files(service, site):
        try:
            template = environment.get_template(file.template)
            rendered[file.path] = template.render(own, site=site, data=data, beside=beside).encode()
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            place = f"{file.template}:{line}" if line else file.template
            raise RenderError(f"{place}: {type(error).__name__}: {error.message}") from error
    return rendered


def _by_service(tier: str, settings: Settings) -> dict[str, dict[str, Value]]:
    by_service: dict[str, dict[str, Value]] = {}
    for name, value in settings.items():
        of, _, rest = name.partition(".")
        service, mark, parameter = rest.partition(".")
        if of == tier and mark:
            by_service.setdefault(service, {})[parameter] = value
    return by_service
