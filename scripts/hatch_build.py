"""Part of building a wheel: Plotly's JavaScript goes into it, so that nobody needs the rest of Plotly,
and where the project is, which whoever releases it says by AUTOTUNE_URL."""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {"Source": "", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}


class PlotlyHook(BuildHookInterface):  # type: ignore[type-arg]  # of its configuration
    """What `autotune.report.page` looks for among the shipped files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """An editable build finds it in the package."""
        if version != "editable":
            script = files("plotly") / "package_data" / "plotly.min.js"
            build_data["force_include"][str(script)] = "autotune/_shipped/plotly.min.js"


class AddressHook(MetadataHookInterface):
    """The project's URLs in the metadata. A build by hand has none: it knows of no such place."""

    def update(self, metadata: dict[str, Any]) -> None:
        """``metadata`` is of the project table."""
        url = os.environ.get("AUTOTUNE_URL", "").rstrip("/")
        metadata["urls"] = {name: url + page for name, page in PAGES.items()} if url else {}
