"""Build hooks: the wheel contains Plotly's JavaScript without the rest of Plotly, and project URLs.

For a release, AUTOTUNE_URL sets the URL.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {"Source": "", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}


class PlotlyHook(BuildHookInterface):  # type: ignore[type-arg]  # of its configuration
    """A hook that adds the file that `autotune.report.page` reads."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file, except to an editable build, which uses Plotly's package."""
        if version != "editable":
            script = files("plotly") / "package_data" / "plotly.min.js"
            build_data["force_include"][str(script)] = "autotune/_shipped/plotly.min.js"


class AddressHook(MetadataHookInterface):
    """A hook that adds the project's URLs to the metadata, except in a local build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Change ``metadata``, the project table."""
        url = os.environ.get("AUTOTUNE_URL", "").rstrip("/")
        metadata["urls"] = {name: url + page for name, page in PAGES.items()} if url else {}
