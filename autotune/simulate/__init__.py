"""A stack whose true peak is known: the reference chain as a queueing model, in virtual time."""
