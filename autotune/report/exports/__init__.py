"""An export in the terms of other tools."""
