"""AlterUserScramCredentials: which changes the controller accepts, and the credentials that result."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from moldau.base.broker_configs import cluster_default_configs, effective_broker_configs
from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode
from moldau.base.settings.own import MOLDAU_SCRAM_SECRET
from moldau.base.steps import finish
from moldau.metadata.apply import apply
from moldau.metadata.controller.configs import decide_alter_configs, decide_incremental_alter_configs
from moldau.metadata.controller.scram_credentials import (
    decide_alter_user_scram_credentials,
    decide_scram_secret,
    new_scram_secret,
)
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.metadata.scram_secret import scram_secret
from moldau.security.sasl.scram_messages import ScramKeys
from moldau.security.scram_credentials import ScramMechanism
from moldau.wire.messages import alter_configs, incremental_alter_configs
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

SECRET = "made at random"
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
    decision = finish(decide_alter_user_scram_credentials(image, request, lambda: SECRET))
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


# --- the secret from which the salts of unknown users are derived -----------------------------------------------


def test_the_first_user_creates_the_salt_secret_and_nothing_changes_it() -> None:
    assert scram_secret(MetadataImage()) is None
    image, _ = change(MetadataImage(), upsert("ann"))
    assert scram_secret(image) == SECRET
    request = AlterUserScramCredentialsRequest([], [upsert("bob")])
    later = finish(decide_alter_user_scram_credentials(image, request, lambda: "another"))
    image, _ = apply(image, later.records, 9, 1)
    assert scram_secret(image) == SECRET
    image, _ = change(image, ScramCredentialDeletion("ann", SHA_256), ScramCredentialDeletion("bob", SHA_256))
    assert scram_secret(image) == SECRET


def test_a_refused_change_creates_no_salt_secret() -> None:
    image, _ = change(MetadataImage(), upsert("", SHA_256))
    assert scram_secret(image) is None


def test_users_of_a_formatted_directory_get_a_salt_secret_when_a_controller_takes_over() -> None:
    assert decide_scram_secret(MetadataImage(), lambda: SECRET).records == ()
    image, _ = change(MetadataImage(), upsert("ann"))
    formatted = replace(image, configs=MetadataImage().configs)
    (record,) = decide_scram_secret(formatted, lambda: SECRET).records
    assert scram_secret(apply(formatted, [record], 9, 1)[0]) == SECRET
    assert decide_scram_secret(image, lambda: "another").records == ()
    assert len({new_scram_secret(Random(seed)) for seed in range(9)}) == 9


def test_clients_can_neither_set_nor_remove_the_salt_secret() -> None:
    image, _ = change(MetadataImage(), upsert("ann"))
    all_brokers = (ConfigResource.BROKER, "")
    replacing = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsResource(*all_brokers, [])])
    assert finish(decide_alter_configs(image, replacing, BrokerLayers())).records == ()
    for operation, value, error in ((0, "mine", ErrorCode.INVALID_REQUEST), (1, None, ErrorCode.NONE)):
        changes = [incremental_alter_configs.AlterableConfig(MOLDAU_SCRAM_SECRET.name, operation, value)]
        resource = incremental_alter_configs.AlterConfigsResource(*all_brokers, changes)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        for before in (image, MetadataImage()):
            decision = finish(decide_incremental_alter_configs(before, request, BrokerLayers()))
            assert decision.records == ()
            assert decision.response.responses[0].error_code == error


def test_no_describe_shows_the_salt_secret() -> None:
    image, _ = change(MetadataImage(), upsert("ann"))
    layers = BrokerLayers(dynamic_default=image.configs_of(ConfigResource.BROKER, ""))
    (entry,) = cluster_default_configs(layers)
    assert (entry.name, entry.value, entry.definition.sensitive) == (MOLDAU_SCRAM_SECRET.name, None, True)
    assert SECRET not in str(entry.synonyms)
    assert SECRET not in str([(each.value, each.synonyms) for each in effective_broker_configs(layers)])
