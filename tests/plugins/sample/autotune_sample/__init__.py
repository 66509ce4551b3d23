"""A plug-in with one of each: a service, a load generator, a sampler."""
