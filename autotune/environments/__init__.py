"""Where configurations are tried: a stack of servers, a model of one, or a command."""
