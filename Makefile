help:
	@true
