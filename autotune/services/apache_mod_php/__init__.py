"""Apache as a web server that runs PHP itself (mpm_prefork, mod_php)."""
