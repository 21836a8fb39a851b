"""Access control lists: what a binding is, which one decides about a request, and what each API requires."""
