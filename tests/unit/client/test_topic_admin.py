"""Documentation of configs: Apache Kafka's is HTML, ours is text."""

from __future__ import annotations

import pytest

from moldau.client.topic_admin import plain_text


@pytest.mark.parametrize(
    ("documentation", "text"),
    [
        (
            'The <a href="#compaction">log compaction</a> of <code>a &lt; b</code>.<br/>More',
            "The log compaction of a < b. More",
        ),
        ("a < b and b > c", "a < b and b > c"),
        ("keeps &amp; and <unfinished", "keeps & and <unfinished"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_markup_is_left_out(documentation: str, text: str) -> None:
    assert plain_text(documentation) == text
