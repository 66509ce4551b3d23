"""A configuration of a study to take away: as files, as settings, or in the terms of other tools."""
