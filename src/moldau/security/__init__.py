"""Who may do what: principals, access control lists, authentication. Pure: no sockets, files or clocks.

It may import `base` and `wire`. Begin with `principals`, then `acls/access`, which handlers ask; `sasl` and `tls`
authenticate, `quotas` limit, `security_settings` reads the settings of all that.
"""
