"""One module per kind of target: where its trials run."""
