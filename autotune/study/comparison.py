"""What a configuration is measured against: settings that are known by a name, or another export's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.services.base import Settings
from autotune.space.choices import is_choice
from autotune.space.dimension import BASELINE, NAMED, PRESETS
from autotune.space.space import Space
from autotune.study.exported import exported_rss, exported_settings


@dataclass(frozen=True)
class ReferenceConfiguration:
    """``settings`` over the baseline, with what to call them.

    ``rss`` are the sizes of processes, in bytes by `tier.service`, that were known to where the
    settings come from.
    """

    name: str
    settings: Settings
    rss: Mapping[str, int] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """What it is called in a sentence."""
        if self.name == BASELINE:
            return "the baseline"
        return f"the {self.name} settings" if self.name in PRESETS else self.name


def reference_configuration(space: Space, named: str, settings: Settings) -> ReferenceConfiguration:
    """What ``settings`` are to be measured against.

    ``named`` is `baseline`, a preset (`recommended`, `published`) of the software that ``settings``
    choose, or the path of an export; a name wins over a path that is spelt alike. Raises
    AutotuneError where it is none of them.
    """
    if named == BASELINE:
        return ReferenceConfiguration(named, {})
    if named in PRESETS:
        chosen = {**space.baseline, **settings}
        deployment = {name: value for name, value in chosen.items() if is_choice(name)}
        return ReferenceConfiguration(named, space.preset(named, deployment))
    export = Path(named)
    if not export.exists():
        raise AutotuneError(
            f"cannot measure against {named!r}",
            hint=f"--against {', '.join(NAMED)}, or the directory of another export",
        )
    return ReferenceConfiguration(named, exported_settings(space, export), exported_rss(export))


def acting(space: Space, settings: Settings) -> Settings:
    """Complete settings, but for those that have no effect."""
    complete = space.as_given(settings).settings
    active = space.active(complete)
    return {name: value for name, value in complete.items() if name in active}
