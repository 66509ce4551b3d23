"""A stack with a known answer: the reference chain as a queueing model, in virtual time."""
