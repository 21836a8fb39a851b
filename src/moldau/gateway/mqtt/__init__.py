"""The MQTT front of the gateway: MQTT 3.1.1 and 5 in front of Kafka's topics.

Pure, without asyncio or sockets: `packets` (the encoding), `topics` (names of MQTT and of Kafka), `messages` (a PUBLISH
as a record and back), `session` and `sessions` (what a client may say, and what is kept of it), `outbox` (what is under
way to it), `retained`. On the event loop: `server` (connections), `tails` (readers of Kafka), `stored` (the two
compacted topics). Begin with `server`.
"""
