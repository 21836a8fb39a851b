"""Error codes: those of newer brokers are kept."""

from __future__ import annotations

import pickle

import pytest

from moldau.base.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("code", [150, -2, 2**15 - 1])
def test_a_code_of_a_newer_broker_is_kept(code: int) -> None:
    unknown = ErrorCode(code)
    assert unknown == code
    assert unknown == ErrorCode(code)
    assert unknown not in list(ErrorCode)
    assert unknown not in {ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR}
    assert {unknown: 1}[ErrorCode(code)] == 1
    assert str(KafkaError(unknown)) == f"UNKNOWN_ERROR_CODE_{code}"
    assert pickle.loads(pickle.dumps(unknown)) == unknown
    assert isinstance(unknown, ErrorCode)


@pytest.mark.parametrize("value", [2**15, -(2**15) - 1, "NONE", None, 1.5])
def test_invalid_codes_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a valid ErrorCode"):
        ErrorCode(value)  # type: ignore[call-overload]
