"""Finds, proves and hands over the settings with which a web stack carries the most load."""

__version__ = "0.1.0"
