"""Reads the cluster in the background at a gentle pace, so that pages answer from memory."""
