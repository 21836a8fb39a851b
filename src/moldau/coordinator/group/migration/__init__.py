"""Groups that change their protocol while they have members, and classic members of consumer groups (KIP-848).

It knows `classic` and `consumer`, which do not know it or each other. Begin with `conversions`, which decides;
`upgrade` and `downgrade` convert, `members` answers classic requests to a consumer group.
"""
