"""Build hooks, which add Plotly's JavaScript and the project's URLs to the wheel.

The environment variable AUTOTUNE_URL sets the project's URL for a release.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {"Source": "", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}


class PlotlyHook(BuildHookInterface):  # type: ignore[type-arg]  # of its configuration
    """A hook that adds Plotly's JavaScript, which `autotune.report.page` reads, to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add Plotly's JavaScript. An editable build uses the file in Plotly's package instead."""
        if version != "editable":
            script = files("plotly") / "package_data" / "plotly.min.js"
            build_data["force_include"][str(script)] = "autotune/_shipped/plotly.min.js"


class AddressHook(MetadataHookInterface):
    """A hook that adds the project's URLs to the metadata, except in a local build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the URLs to ``metadata``, which is the project table of ``pyproject.toml``."""
        url = os.environ.get("AUTOTUNE_URL", "").rstrip("/")
        metadata["urls"] = {name: url + page for name, page in PAGES.items()} if url else {}
