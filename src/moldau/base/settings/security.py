"""Broker keys of logins, TLS and access control; `oauth` has those of OAUTHBEARER."""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import (
    BOOLEAN,
    DYNAMIC_PER_LISTENER,
    DYNAMIC_PER_MECHANISM,
    INT,
    LIST,
    LONG,
    PASSWORD,
    PER_BROKER,
    PER_LISTENER,
    STRING,
    ConfigDef,
    OneOf,
    Range,
)

# fmt: off
# Authentication
SASL_ENABLED_MECHANISMS: Final = ConfigDef(
    "sasl.enabled.mechanisms", LIST, ("GSSAPI",), None,
    "The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, -512, OAUTHBEARER.",
    update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SASL_JAAS_CONFIG: Final = ConfigDef(
    "sasl.jaas.config", PASSWORD, None, None,
    "Users and passwords; only as listener.name.LISTENER.MECHANISM.sasl.jaas.config.",
    update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_MECHANISM)
SASL_MECHANISM_INTER_BROKER_PROTOCOL: Final = ConfigDef(
    "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", None,
    "The SASL mechanism with which this node logs in to other brokers.", update_mode=PER_BROKER)
SASL_MECHANISM_CONTROLLER_PROTOCOL: Final = ConfigDef(
    "sasl.mechanism.controller.protocol", STRING, "GSSAPI", None,
    "The SASL mechanism with which this node logs in to controllers.")
SASL_SERVER_MAX_RECEIVE_SIZE: Final = ConfigDef(
    "sasl.server.max.receive.size", INT, 524_288, None,
    "Largest request of a client that has not authenticated yet.", listener_forms=PER_LISTENER)
CONNECTIONS_MAX_REAUTH_MS: Final = ConfigDef(
    "connections.max.reauth.ms", LONG, 0, None,
    "How long a SASL session lasts until the client authenticates again; 0: for ever.",
    listener_forms=DYNAMIC_PER_MECHANISM)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS: Final = ConfigDef(
    "connection.failed.authentication.delay.ms", INT, 100, Range(0),
    "How long a refused client waits for the answer.")
DELEGATION_TOKEN_SECRET_KEY: Final = ConfigDef(
    "delegation.token.secret.key", PASSWORD, None, None,
    "The key of delegation tokens, the same on all nodes; without it there are none.")
DELEGATION_TOKEN_MAX_LIFETIME_MS: Final = ConfigDef(
    "delegation.token.max.lifetime.ms", LONG, 604_800_000, Range(1),
    "After this time a delegation token cannot be renewed any more.")
DELEGATION_TOKEN_EXPIRY_TIME_MS: Final = ConfigDef(
    "delegation.token.expiry.time.ms", LONG, 86_400_000, Range(1),
    "How long a delegation token is valid that was created or renewed.")
DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS: Final = ConfigDef(
    "delegation.token.expiry.check.interval.ms", LONG, 3_600_000, Range(1),
    "How often the controller removes expired delegation tokens.")

# TLS
SSL_CLIENT_AUTH: Final = ConfigDef(
    "ssl.client.auth", STRING, "none", OneOf(("required", "requested", "none")),
    "Whether clients must show a certificate: required, requested or none.",
    update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_PRINCIPAL_MAPPING_RULES: Final = ConfigDef(
    "ssl.principal.mapping.rules", STRING, "DEFAULT", None,
    "How the subject of a client's certificate becomes the name of a user.", listener_forms=PER_LISTENER)
SSL_ALLOW_DN_CHANGES: Final = ConfigDef(
    "ssl.allow.dn.changes", BOOLEAN, False, None,
    "Whether a renewed certificate may have another subject.", listener_forms=PER_LISTENER)
SSL_ALLOW_SAN_CHANGES: Final = ConfigDef(
    "ssl.allow.san.changes", BOOLEAN, False, None,
    "Whether a renewed certificate may lack alternative names of the old one.", listener_forms=PER_LISTENER)
SSL_PROTOCOL: Final = ConfigDef(
    "ssl.protocol", STRING, "TLSv1.3", None,
    "The highest version of TLS: TLSv1.3 or TLSv1.2.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_ENABLED_PROTOCOLS: Final = ConfigDef(
    "ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), None,
    "The versions of TLS that are spoken.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_KEYSTORE_TYPE: Final = ConfigDef(
    "ssl.keystore.type", STRING, "JKS", None,
    "PEM, or PKCS12; the first bytes of the file decide.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_KEYSTORE_LOCATION: Final = ConfigDef(
    "ssl.keystore.location", STRING, None, None,
    "The file with this node's private key and certificates; a changed file is read again.",
    update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_KEYSTORE_PASSWORD: Final = ConfigDef(
    "ssl.keystore.password", PASSWORD, None, None,
    "The password of a PKCS12 key store.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_KEY_PASSWORD: Final = ConfigDef(
    "ssl.key.password", PASSWORD, None, None,
    "The password of an encrypted private key in PEM.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_KEYSTORE_KEY: Final = ConfigDef(
    "ssl.keystore.key", PASSWORD, None, None,
    "The private key itself, in PEM.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_KEYSTORE_CERTIFICATE_CHAIN: Final = ConfigDef(
    "ssl.keystore.certificate.chain", PASSWORD, None, None,
    "The certificates for ssl.keystore.key, in PEM.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_TRUSTSTORE_TYPE: Final = ConfigDef(
    "ssl.truststore.type", STRING, "JKS", None,
    "PEM, or PKCS12; the first bytes of the file decide.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_TRUSTSTORE_LOCATION: Final = ConfigDef(
    "ssl.truststore.location", STRING, None, None,
    "The file with trusted certificates; without it the system's are trusted.",
    update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_TRUSTSTORE_PASSWORD: Final = ConfigDef(
    "ssl.truststore.password", PASSWORD, None, None,
    "The password of a PKCS12 trust store.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_TRUSTSTORE_CERTIFICATES: Final = ConfigDef(
    "ssl.truststore.certificates", PASSWORD, None, None,
    "The trusted certificates themselves, in PEM.", update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM: Final = ConfigDef(
    "ssl.endpoint.identification.algorithm", STRING, "https", None,
    "https: nodes check each other's host names; nothing: they do not.",
    update_mode=PER_BROKER, listener_forms=PER_LISTENER)
SSL_CIPHER_SUITES: Final = ConfigDef(
    "ssl.cipher.suites", LIST, (), None,
    "The cipher suites, by Java's or OpenSSL's names; nothing means OpenSSL's choice.",
    update_mode=PER_BROKER, listener_forms=DYNAMIC_PER_LISTENER)

# Access control
AUTHORIZER_CLASS_NAME: Final = ConfigDef(
    "authorizer.class.name", STRING, "", None,
    "The class that checks ACLs; empty means that everybody may do everything.")
SUPER_USERS: Final = ConfigDef(
    "super.users", STRING, "", None,
    "Principals that may do everything, as User:name, with semicolons between them.", internal=True)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = ConfigDef(
    "allow.everyone.if.no.acl.found", BOOLEAN, False, None,
    "Whether everybody may use a resource that no ACL covers.", internal=True)
QUOTA_WINDOW_NUM: Final = ConfigDef(
    "quota.window.num", INT, 11, Range(1),
    "The number of samples over which the rate of a client is measured for its quotas.")
QUOTA_WINDOW_SIZE_SECONDS: Final = ConfigDef(
    "quota.window.size.seconds", INT, 1, Range(1),
    "The length of one sample when the rate of a client is measured for its quotas.")
CONTROLLER_QUOTA_WINDOW_NUM: Final = ConfigDef(
    "controller.quota.window.num", INT, 11, Range(1),
    "The number of samples over which controller_mutation_rate is measured.")
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS: Final = ConfigDef(
    "controller.quota.window.size.seconds", INT, 1, Range(1),
    "The length of one sample when controller_mutation_rate is measured.")
