"""Progress of a study while it runs: lines or a live panel, and the page of the report."""
