"""All configuration: groups of settings, where they are read from, and what is said of wrong ones."""
