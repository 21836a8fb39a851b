"""The log cleaner: chooses the log to clean next, and runs the process that cleans it."""
