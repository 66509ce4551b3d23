"""Find and prove the settings with which a web stack sustains the highest load within its SLO."""

__version__ = "0.1.0"
