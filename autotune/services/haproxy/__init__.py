"""HAProxy, as a load balancer."""
