"""A plug-in with a service, a load generator and a sampler."""
