"""PHP's own settings, for each of the builds that FPM and Apache run."""
