"""uWSGI, which runs applications written in Python and other languages."""
