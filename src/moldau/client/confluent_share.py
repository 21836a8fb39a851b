"""librdkafka's share consumer (KIP-932), a preview in confluent-kafka 2.15 and newer. An older one, or none, is an
ImportError. It lacks what Java's has for renewing locks (AcknowledgeType.RENEW) and for `share.acquire.mode`.

Import this module inside functions: loading librdkafka is too slow for a `--help`.
"""

from confluent_kafka import AcknowledgeType, ShareConsumer

__all__ = ["AcknowledgeType", "ShareConsumer"]
