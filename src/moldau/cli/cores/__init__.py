"""`moldau start --cores N`: several nodes of one machine behind one command and one port."""
