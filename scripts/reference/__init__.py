"""Reference pages, which `python -m scripts.reference` generates from the code."""
