"""Discovery of a target from running hosts."""
