"""nginx, as a load balancer or in front of an application server."""
