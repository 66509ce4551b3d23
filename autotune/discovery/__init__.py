"""From running hosts to a target."""
