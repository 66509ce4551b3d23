"""PHP's own settings, for the builds that FPM and Apache run."""
