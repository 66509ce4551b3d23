"""The prose standard as rules, and the project's sentences, to which the rules apply."""
