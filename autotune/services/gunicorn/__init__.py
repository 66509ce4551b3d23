"""gunicorn, which runs Python applications."""
