"""The differences between Linux, macOS and Windows: the only package that checks which operating system this is.

Each module covers one feature, contains an implementation for each system, and chooses one at import, so that a call
costs no check. An implementation takes system calls that only one system has as arguments, so that it can be tested on
any. Nothing else of Moldau is imported here, and modules that Windows lacks are imported only when needed.
Begin with the module of the feature; docs/platforms.md says what was tested where.
"""
