"""Build hooks: the wheel contains Plotly's JavaScript without the rest of Plotly, and project URLs.

Who releases the wheel sets the URL with AUTOTUNE_URL.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PAGES = {"Source": "", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}


class PlotlyHook(BuildHookInterface):  # type: ignore[type-arg]  # of its configuration
    """Add the file that `autotune.report.page` reads from the shipped files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file. An editable build finds it in the package instead."""
        if version != "editable":
            script = files("plotly") / "package_data" / "plotly.min.js"
            build_data["force_include"][str(script)] = "autotune/_shipped/plotly.min.js"


class AddressHook(MetadataHookInterface):
    """Add the project's URLs to the metadata. A local build has none."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Change ``metadata``, the project table."""
        url = os.environ.get("AUTOTUNE_URL", "").rstrip("/")
        metadata["urls"] = {name: url + page for name, page in PAGES.items()} if url else {}
