"""A new password for the admin user of a secured broker or cluster whose client.properties is missing.

Who can delete the file can read the keys beside it, so this gives nobody access that they did not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Final

from moldau.base.errors import KafkaError, MalformedData, UnusableProperty
from moldau.secure_setup.directory import SecureDirectory
from moldau.secure_setup.problems import SetupFailed

REQUEST_TIMEOUT_MS: Final = 10_000
RESPONSE_WAIT_SECONDS: Final = 15.0


def renew_admin_password(address: str, properties: Mapping[str, str], directory: SecureDirectory) -> str:
    """Set a new password over a connection with these properties, write client.properties, and return the password.
    Raise SetupFailed if that cannot be done."""
    from moldau.client.admin.cluster_admin import ClusterAdmin
    from moldau.client.admin.users import Users
    from moldau.client.cluster import Cluster
    from moldau.secure_setup.first_users import new_password
    from moldau.secure_setup.settings import ADMIN

    password = new_password()
    try:
        with (
            directory.new_client_file(password),
            closing(Cluster(address, properties, RESPONSE_WAIT_SECONDS)) as cluster,
        ):
            Users(ClusterAdmin(cluster, REQUEST_TIMEOUT_MS)).set_password(ADMIN, password)
    except (OSError, MalformedData, KafkaError, UnusableProperty) as error:
        raise SetupFailed(f"{directory.client_file} is missing and cannot be made again: {error}") from error
    return password
