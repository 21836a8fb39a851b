"""The log cleaner at work: which log to clean next, and the process that cleans it."""
