"""Part of building a wheel: Plotly's JavaScript goes into it, so that nobody needs the rest of Plotly."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlotlyHook(BuildHookInterface):  # type: ignore[type-arg]  # of its configuration
    """What `autotune.report.page` looks for among the shipped files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable build finds it in the package."""
        if version != "editable":
            script = files("plotly") / "package_data" / "plotly.min.js"
            build_data["force_include"][str(script)] = "autotune/_shipped/plotly.min.js"
