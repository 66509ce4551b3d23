"""Apache as a web server that itself runs PHP (mpm_prefork, mod_php)."""
