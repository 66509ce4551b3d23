"""Apache with mpm_event, as a load balancer or in front of PHP-FPM."""
