"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): clients authenticate with signed tokens of an identity provider."""
