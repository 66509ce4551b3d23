"""Export a configuration from a study: as files, as settings, or in the formats of other tools."""
