"""uWSGI, which runs applications in Python and other languages."""
