"""Templates of configuration files: Jinja2 in a sandbox. Undefined values are errors, and values
are not escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path

from jinja2 import (
    Environment,
    FileSystemLoader,
    StrictUndefined,
    Template,
    TemplateError,
    TemplateNotFound,
)
from jinja2.loaders import split_template_path
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel

from autotune import config_text, foreign_files
from autotune.errors import INVALID_CONTENT_ERRORS, RenderError, describe_invalid_content


class _Sandbox(ImmutableSandboxedEnvironment):
    """Sandbox for the templates of targets, which may come from untrusted people."""

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        # Methods of models can read files and unpickle their arguments.
        is_model_method = isinstance(obj, BaseModel) and callable(value)
        return not is_model_method and super().is_safe_attribute(obj, attr, value)


class _Loader(FileSystemLoader):
    """Loader of templates, which may contain bytes that are not UTF-8."""

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        location = Path(*split_template_path(template))
        for directory in map(Path, self.searchpath):
            path = directory / location
            if path.is_file():
                content = foreign_files.read_named_file(path, foreign_files.MAX_TEMPLATE_BYTES)
                # An edit during a study must not change later trials.
                return config_text.decode(content), str(path), lambda: True
        raise TemplateNotFound(template)


@cache
def _create_environment(directories: tuple[Path, ...]) -> _Sandbox:
    # Configuration files are not HTML, so escaping would corrupt them.
    environment = _Sandbox(
        loader=_Loader([str(directory) for directory in directories]),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["onoff"] = lambda value: "on" if value else "off"
    environment.filters["yesno"] = lambda value: "yes" if value else "no"
    return environment


@lru_cache(maxsize=128)  # the same files are rendered again in each trial
def _compile(directories: tuple[Path, ...], template_text: str) -> Template:
    return _create_environment(directories).from_string(template_text)


def render_file(
    directories: tuple[Path, ...], name: str, values: Mapping[str, object], text: str | None = None
) -> bytes:
    """Render a template and return its bytes. The template is ``text``, or else the first file
    ``name`` in ``directories``.

    Raises RenderError.
    """
    try:
        template = (
            _create_environment(directories).get_template(name)
            if text is None
            else _compile(directories, text)
        )
        return config_text.encode(template.render(values))
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        error_location = f"{name}:{line}" if line else name
        raise RenderError(f"{error_location}: {type(error).__name__}: {error.message}") from error
    except INVALID_CONTENT_ERRORS as error:  # such as a division by zero in the template
        raise RenderError(f"{name}: {describe_invalid_content(error)}") from error


def render_text(template: str, values: Mapping[str, object]) -> str:
    """Render a template in the same way as in deployments, and return the text."""
    return _compile((), template).render(values)
