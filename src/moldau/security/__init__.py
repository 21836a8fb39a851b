"""Who may do what: principals, access control lists, authentication. Pure: no sockets, files or clocks."""
