"""PHP's own settings, of the build that FPM runs and of the one in Apache."""
