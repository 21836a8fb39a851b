"""`moldau acl`: who may do what."""
