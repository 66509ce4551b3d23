"""A user's own configuration files made into templates; everything else in them stays as it is."""
