"""EndTxn v0–5. The transaction is decided when this is answered; its markers follow.

From v5 on (transaction version 2, KIP-890) every end gives the producer a new epoch, so that late records of the old
one are refused.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.security.acls.requirements import TRANSACTION_WRITE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import reply_or_error
from moldau.wire.apis import ApiKey
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


class EndTxn(Handler):
    api = ApiKey.END_TXN
    versions = (0, 5)
    needs = (TRANSACTION_WRITE,)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, transactions: TransactionCoordinator) -> None:
        self._coordinator = transactions

    def answer(self, request: EndTxnRequest, caller: Caller) -> EndTxnResponse | Promise[EndTxnResponse]:
        if not caller.access.allows(TRANSACTION_WRITE, request.transactional_id):
            return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        client = caller.group_client
        return reply_or_error(
            lambda: self._coordinator.submit(
                request.transactional_id, lambda transactions: transactions.end(request, client)
            ),
            lambda error: EndTxnResponse(error_code=error.code),
        )
