"""The reference pages, made from the code; `python -m scripts.reference` writes all of them."""
