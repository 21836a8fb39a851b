"""AlterUserScramCredentials v0 (KIP-554)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import LISTED_A_TURN
from moldau.metadata.controller.scram_credentials import decide_alter_user_scram_credentials, new_scram_secret
from moldau.security.acls.requirements import CLUSTER_ALTER
from moldau.security.principals import Client
from moldau.server.admin_actions import AdminAction, Lazy, first_joined
from moldau.server.handlers.forwarded import Deciders, ForwardedHandler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class AlterUserScramCredentials(ForwardedHandler):
    api = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
    versions = (0, 0)
    needs = (CLUSTER_ALTER,)

    @staticmethod
    def decide(
        deciders: Deciders, request: AlterUserScramCredentialsRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.admin.submit(
            lambda image: decide_alter_user_scram_credentials(
                image, request, partial(new_scram_secret, deciders.admin.rng)
            )
        )

    def refuse(
        self, request: AlterUserScramCredentialsRequest, error: KafkaError
    ) -> Steps[AlterUserScramCredentialsResponse]:
        name = attrgetter("name")
        users = list(dict.fromkeys([*map(name, request.deletions), *map(name, request.upsertions)]))
        results = yield from map_in_steps(
            TurnItems(LISTED_A_TURN),
            users,
            lambda user: AlterUserScramCredentialsResult(user, error.code, error.message),
        )
        return AlterUserScramCredentialsResponse(results=results)

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        changes: dict[str, list[Any]] = defaultdict(list)
        for each in chain(request.deletions, request.upsertions):
            changes[each.name].append(each)
        for result in response.results:
            detail = Lazy(partial(_scram_changes, changes.get(result.user, ())))
            yield AdminAction(f"user:{result.user}", result.error_code, detail)


def _scram_changes(changes: Sequence[Any]) -> str:
    names = (
        f"{'set' if hasattr(each, 'salt') else 'delete'}:{SCRAM_MECHANISMS.get(each.mechanism, str(each.mechanism))}"
        for each in changes
    )
    return first_joined(names, len(changes))
