"""What Linux, macOS and Windows do differently, and nothing else: the only room that asks which system this is.

Each module names one thing that a system does, holds its ways of doing it, and picks one when it is imported: who calls
it pays for no question. The ways are functions that take the system's calls as arguments where these exist on one
system only, so that each is tested on any. Nothing of Moldau is imported here, and no module that Windows lacks is
imported before it is needed. What was tried where: docs/platforms.md.
"""
