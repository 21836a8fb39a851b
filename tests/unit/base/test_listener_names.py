"""Names of listeners and their security protocols, as Kafka's own files and those of operators write them."""

from __future__ import annotations

import pytest

from moldau.base.listeners import parse_listener, parse_protocol_map


def test_spaces_do_not_matter_and_names_may_have_hyphens() -> None:
    protocols = parse_protocol_map(" replication-9091 : ssl , PLAIN-9092:PLAINTEXT,")
    assert protocols == {"REPLICATION-9091": "SSL", "PLAIN-9092": "PLAINTEXT"}
    listener = parse_listener("plain-9092://0.0.0.0:9092", protocols)
    assert (listener.name, listener.security_protocol, listener.port) == ("PLAIN-9092", "PLAINTEXT", 9092)


@pytest.mark.parametrize("text", ["SSL", ":SSL", " : SSL", "A:", "A:TLS"])
def test_invalid_protocol_maps_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not NAME:PROTOCOL with one of PLAINTEXT"):
        parse_protocol_map(text)
