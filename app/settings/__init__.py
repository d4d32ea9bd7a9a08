"""Settings: the declared table, its file, and the pane that shows it."""
