"""PHP-FPM: the pool of PHP processes behind a web server."""
