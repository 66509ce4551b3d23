"""Apache, as a load balancer (mpm_event) or as a web server that runs PHP itself (mpm_prefork)."""
