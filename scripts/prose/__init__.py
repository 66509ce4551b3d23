"""The prose standard as rules, and the sentences of the project that they apply to."""
