"""AlterUserScramCredentials: which changes the controller accepts, and the credentials that result."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.metadata.apply import apply
from moldau.metadata.controller.scram_credentials import decide_alter_user_scram_credentials
from moldau.metadata.image import MetadataImage
from moldau.security.sasl.scram_messages import ScramKeys
from moldau.security.scram_credentials import ScramMechanism
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

SHA_256, SHA_512 = int(ScramMechanism.SCRAM_SHA_256), int(ScramMechanism.SCRAM_SHA_512)


def upsert(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, b"salt", b"salted")


Change = ScramCredentialDeletion | ScramCredentialUpsertion


def change(image: MetadataImage, *changes: Change) -> tuple[MetadataImage, dict[str, tuple[int, str | None]]]:
    """Return the image after the changes, and the result of each user."""
    request = AlterUserScramCredentialsRequest(
        [each for each in changes if isinstance(each, ScramCredentialDeletion)],
        [each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    decision = decide_alter_user_scram_credentials(image, request)
    changed, _ = apply(image, decision.records, image.offset + 1, 1)
    return changed, {each.user: (each.error_code, each.error_message) for each in decision.response.results}


def test_a_credential_is_added_changed_and_removed() -> None:
    image, results = change(MetadataImage(), upsert("ann"), upsert("bob", SHA_512))
    assert results == {"ann": (0, None), "bob": (0, None)}
    assert set(image.scram_credentials) == {(SHA_256, "ann"), (SHA_512, "bob")}
    keys = ScramKeys(ScramMechanism.SCRAM_SHA_256)
    assert image.scram_credentials[SHA_256, "ann"] == keys.credential(b"salted", b"salt", 4096)
    image, _ = change(image, upsert("ann", iterations=8192))
    assert image.scram_credentials[SHA_256, "ann"].iterations == 8192
    image, results = change(image, ScramCredentialDeletion("ann", SHA_256))
    assert results == {"ann": (0, None)}
    assert set(image.scram_credentials) == {(SHA_512, "bob")}


TWICE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([upsert("")], {"": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")}),
        ([upsert("a", 0)], {"a": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")}),
        ([upsert("a", 99)], {"a": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")}),
        ([upsert("a", iterations=4095)], {"a": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")}),
        ([upsert("a", iterations=16385)], {"a": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")}),
        (
            [ScramCredentialDeletion("a", SHA_256)],
            {"a": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")},
        ),
        (
            [ScramCredentialDeletion("ann", SHA_512)],
            {"ann": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")},
        ),
        ([upsert("a"), upsert("a", SHA_512)], {"a": TWICE}),
        ([upsert("a"), upsert("a"), upsert("a")], {"a": TWICE}),
        ([ScramCredentialDeletion("ann", SHA_256), upsert("ann")], {"ann": TWICE}),
        (
            [upsert("a", 0), upsert("a")],
            {"a": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")},
        ),
    ],
)
def test_refused_changes_do_not_stop_others(changes: list[Change], expected: dict[str, tuple[ErrorCode, str]]) -> None:
    before, _ = change(MetadataImage(), upsert("ann"))
    after, results = change(before, *changes, upsert("other"))
    assert results == {**expected, "other": (0, None)}
    assert set(after.scram_credentials) == {(SHA_256, "ann"), (SHA_256, "other")}
