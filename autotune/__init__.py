"""autotune: finds, proves and hands over the settings a whole web stack carries the most load with."""

__version__ = "0.1.0"
