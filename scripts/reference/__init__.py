"""Reference pages, generated from the code. `python -m scripts.reference` writes all of them."""
