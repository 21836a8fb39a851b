"""kafka-storage format --add-scram: the arguments, and the file that the first controller reads."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from moldau.base.errors import StorageFault
from moldau.base.secure_files import FIRST_RECORDS_FILE
from moldau.cli.kafka.storage_format.scram_users import scram_record
from moldau.cli.kafka.tool import ToolFailed
from moldau.log.files import DiskFiles
from moldau.metadata.apply import apply
from moldau.metadata.controller.features import decide_bootstrap
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.first_records import read_first_records
from moldau.secure_setup.first_users import write_first_records
from moldau.security.sasl.scram_messages import ScramKeys
from moldau.security.scram_credentials import ScramMechanism

PLANTED = "s3cr3t"


def test_a_credential_from_a_password() -> None:
    record = scram_record(f'SCRAM-SHA-512=[name="ann",password="{PLANTED}",iterations=8192]')
    keys = ScramKeys(ScramMechanism.SCRAM_SHA_512)
    expected = keys.credential(keys.salted_password(PLANTED, record.salt, 8192), record.salt, 8192)
    assert (record.name, record.mechanism, record.iterations) == ("ann", 2, 8192)
    assert (record.stored_key, record.server_key) == (expected.stored_key, expected.server_key)


def test_a_credential_from_a_salted_password() -> None:
    keys = ScramKeys(ScramMechanism.SCRAM_SHA_256)
    salted = b64encode(keys.salted_password(PLANTED, b"salt", 4096)).decode()
    record = scram_record(f"SCRAM-SHA-256=[name=ann,salt=c2FsdA==,saltedpassword={salted}]")
    assert record.stored_key == scram_record(f"SCRAM-SHA-256=[name=ann,salt=c2FsdA==,password={PLANTED}]").stored_key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLANTED, "Failed to find equals sign in SCRAM argument"),
        (f"SCRAM-SHA-1=[name=a,password={PLANTED}]", "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        (f"{PLANTED}==", "The add-scram mechanism is not supported."),
        (f"SCRAM-SHA-256=name=a,password={PLANTED}]", "Expected configuration string to start with ["),
        (f"SCRAM-SHA-256=[name=a,password={PLANTED}", "Expected configuration string to end with ]"),
        (f"SCRAM-SHA-256=[password={PLANTED}]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=YQ==]", "You must supply 'salt' with 'saltedpassword' to add-scram"),
        (
            f"SCRAM-SHA-256=[name=a,password={PLANTED},iterations=4095]",
            "The 'iterations' value must be >= 4096 for add-scram using SCRAM_SHA_256",
        ),
        (
            f"SCRAM-SHA-512=[name=a,password={PLANTED},iterations=16385]",
            "The 'iterations' value must be <= 16384 for add-scram using SCRAM_SHA_512",
        ),
        (f"SCRAM-SHA-256=[name=a,password={PLANTED},iterations=x]", "Failed to parse iterations count"),
        (f"SCRAM-SHA-256=[name=a,password=b,{PLANTED}]", "Failed to find equals sign"),
        (f"SCRAM-SHA-256=[name=a,password=b,{PLANTED}=c]", "Unknown SCRAM configurations"),
        (f"SCRAM-SHA-256=[name=a,salt=*{PLANTED},password=b]", "Failed to decode given salt"),
        (f"SCRAM-SHA-256=[name=a,salt=\u00fc{PLANTED},password=b]", "Failed to decode given salt"),
    ],
)
def test_refused_arguments_show_no_password(text: str, message: str) -> None:
    with pytest.raises(ToolFailed) as refused:
        scram_record(text)
    assert message in str(refused.value)
    assert PLANTED not in str(refused.value)


def test_a_new_metadata_log_begins_with_the_users(tmp_path: Path) -> None:
    files, directory = DiskFiles(), str(tmp_path)
    assert read_first_records(files, directory) == ()
    write_first_records(files, directory, [scram_record("SCRAM-SHA-256=[name=ann,password=x]")], 5)
    records = read_first_records(files, directory)
    image, _ = apply(MetadataImage(), decide_bootstrap(MetadataImage(), records).records, 5, 1)
    assert set(image.scram_credentials) == {(1, "ann")}
    assert decide_bootstrap(image, records).records == ()


def test_a_broken_file_prevents_the_start(tmp_path: Path) -> None:
    write_first_records(DiskFiles(), str(tmp_path), [scram_record("SCRAM-SHA-256=[name=ann,password=x]")], 5)
    file = tmp_path / FIRST_RECORDS_FILE
    content = bytearray(file.read_bytes())
    content[150] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageFault, match=FIRST_RECORDS_FILE):
        read_first_records(DiskFiles(), str(tmp_path))
