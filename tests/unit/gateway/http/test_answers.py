"""What a device is told of its records, and as whom it comes."""

from __future__ import annotations

import base64
import json

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.gateway.http.answers import answer_of
from moldau.gateway.http.credentials import credentials_of
from moldau.gateway.http.words import API_ERRORS
from moldau.gateway.ports import Appended, Certificate, Credentials, Password, Place, Token
from moldau.web.failures import ApiError

MISSING = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no partition 9")
LATE = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not acknowledged")
MISSING_BODY = {"error": {"code": "UNKNOWN_TOPIC_OR_PARTITION", "message": "there is no partition 9"}}


@pytest.mark.parametrize(
    ("appended", "status", "body"),
    [
        ([], 200, {"offsets": []}),
        ([Place(0, 5)], 200, {"offsets": [{"partition": 0, "offset": 5}]}),
        (
            [Place(1, 2**62), Place(0, 0)],
            200,
            {"offsets": [{"partition": 1, "offset": 2**62}, {"partition": 0, "offset": 0}]},
        ),
        ([MISSING], 404, MISSING_BODY),
        (
            [MISSING, LATE],
            504,
            {"offsets": [MISSING_BODY, {"error": {"code": "REQUEST_TIMED_OUT", "message": "not acknowledged"}}]},
        ),
        (
            [LATE, Place(0, 1)],
            207,
            {
                "offsets": [
                    {"error": {"code": "REQUEST_TIMED_OUT", "message": "not acknowledged"}},
                    {"partition": 0, "offset": 1},
                ]
            },
        ),
    ],
)
def test_an_answer_has_the_place_or_the_error_of_each_record(appended: Appended, status: int, body: object) -> None:
    answer = answer_of(appended, API_ERRORS.of)
    assert (answer.status, json.loads(answer.body)) == (status, body)


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


@pytest.mark.parametrize(
    ("authorization", "subject", "credentials"),
    [
        (None, None, None),
        (None, "CN=pump", Certificate("CN=pump")),
        (basic("žofie:a:b"), "CN=pump", Password("žofie", "a:b")),
        (basic(":"), None, Password("", "")),
        (b"bAsIc  " + base64.b64encode(b"a:b"), None, Password("a", "b")),
        (b"Bearer abc.def", None, Token("abc.def")),
    ],
)
def test_who_a_request_says_it_is(authorization: bytes | None, subject: str | None, credentials: Credentials) -> None:
    assert credentials_of(authorization, subject) == credentials


@pytest.mark.parametrize(
    "authorization",
    [b"", b"Digest a=b", b"Basic", b"Basic YTpi!", b"Basic YQ==", b"Basic /w==", b"Bearer " + b"x" * 20_000],
)
def test_a_login_that_cannot_be_read_is_refused(authorization: bytes) -> None:
    with pytest.raises(ApiError, match="Authorization", check=lambda error: error.status == 401):
        credentials_of(authorization, None)
