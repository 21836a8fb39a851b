"""`moldau start --cores N`: plans the nodes, checks the data directory, writes their settings, and runs them.

The data directory is laid out like that of `moldau cluster start`, so `moldau cluster status` and `stop` work with it.
The difference: server.properties is written again at each start, from the options, the file and the variables.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moldau.base.ids import uuid_text
from moldau.base.properties import render
from moldau.base.setting_sources import SettingsError, SettingText
from moldau.base.settings.log import LOG_DIR, LOG_DIRS
from moldau.base.settings.node import ADVERTISED_LISTENERS, LISTENERS
from moldau.base.settings.security import DELEGATION_TOKEN_SECRET_KEY
from moldau.cli.cluster.directory import (
    ClusterDirectory,
    Description,
    Security,
    check_ports_are_free,
    ports_above,
)
from moldau.cli.cluster.processes import check_not_running
from moldau.cli.connect import CommandFailed
from moldau.cli.cores.plan import (
    CONTROLLER_PORT_ABOVE,
    INTERNAL_PORTS_ABOVE,
    PLAINTEXT,
    CoresPlan,
    Machine,
    node_settings,
    parse_machines,
    plan_nodes,
)
from moldau.cli.log.output import LogOutput
from moldau.log.files import DiskFiles
from moldau.log.meta_properties import META_PROPERTIES
from moldau.log.meta_properties import read as read_meta_properties
from moldau.platforms.machine import usable_cores
from moldau.platforms.replaced_files import replace_file
from moldau.secure_setup.settings import CLIENTS_LISTENER
from moldau.settings import Settings, from_texts, log_dirs

PRIVATE_FILE: Final = 0o600
"""Settings may have passwords: only this user can read them."""
HEADER: Final = "# Written at each start by `moldau start --cores`: change its options or its --config file instead.\n"


def directory_of_nodes(path: str) -> str:
    """Return why a single node cannot be started on the data of several."""
    description = ClusterDirectory(Path(path)).description()
    count = f"{len(description.nodes)} node{'s' if len(description.nodes) > 1 else ''}"
    return f"{path} is the data of {count}; start with `{description.start_command} --data-dir {path}`"


class CoresStart:
    """One start of all nodes of this machine."""

    def __init__(
        self,
        texts: Mapping[str, SettingText],
        environ: Mapping[str, str],
        cores: int,
        machines: str | None,
        secure_names: tuple[str, ...] | None,
    ) -> None:
        """`texts` are the settings from files, variables and options; `secure_names` further names for the certificate,
        None without --secure."""
        self._texts = dict(texts)
        self._environ = environ
        self._secure_names = secure_names
        self.directory = ClusterDirectory(Path(log_dirs(texts)[0]))
        self._plan = self._read_plan(cores, parse_machines(machines) if machines else ())

    def _read_plan(self, cores: int, machines: tuple[Machine, ...]) -> CoresPlan:
        """Read the listener as a single node would; each node then gets a port of its own above it."""
        is_secure = self._secure_names is not None
        if machines and is_secure:
            raise SettingsError(
                "--machines with --secure is not supported: start each node with a server.properties of its own"
                " (docs/security.md)"
            )
        settings = self._single_node_settings()
        wanted = CLIENTS_LISTENER if is_secure else PLAINTEXT
        if [each.name for each in settings.listeners] != [wanted] or settings.controller_listeners:
            raise SettingsError(
                f"--cores: expected one listener, such as {wanted}://localhost:9092; for others start each node with a"
                " server.properties of its own (docs/cluster.md)"
            )
        (listener,), advertised = settings.listeners, settings.advertised_listeners[0]
        if advertised.port != listener.port:
            raise SettingsError(
                f"--cores: port {advertised.port} is advertised instead of {listener.port}, but each node has a port of"
                " its own; leave the port out: --advertise HOST"
            )
        plan = CoresPlan(cores, listener.host, listener.port, advertised.host, is_secure, machines)
        _ = plan.ports, plan.machine_index  # raise what is wrong with them
        return plan

    def _single_node_settings(self) -> Settings:
        texts = self._texts
        if self._secure_names is not None:
            from moldau.cli.secure_start import secured_defaults
            from moldau.secure_setup.directory import SecureDirectory

            texts = {**secured_defaults(SecureDirectory(self.directory.path), texts), **texts}
        self._secured_texts = texts
        return from_texts(texts, self._environ)

    def run(self, output: LogOutput) -> int:
        from moldau.cli.cluster.foreground import Foreground
        from moldau.cli.cluster.screen import screen

        check_not_running(self.directory)
        description = self._describe(output)
        check_ports_are_free(description, self._plan.listen_host)
        password = self._lay_out(description)
        with screen(output.is_json) as terminal:
            if self._plan.cores > usable_cores():
                terminal.line(f"Warning: --cores {self._plan.cores}: this machine has only {usable_cores()} for us")
            return Foreground(self.directory, description, terminal, password).run()

    def _describe(self, output: LogOutput) -> Description:
        plan, stored = self._plan, self.directory.read_description()
        machines = tuple(each.name for each in plan.machines)
        if stored is None:
            self.directory.check_path()
            cluster_id = self._moved_cluster_id() or self._new_cluster_id()
        else:
            _check_stored(self.directory.path, stored, plan, machines)
            cluster_id = stored.cluster_id
            if self._environ.get("CLUSTER_ID") not in (None, "", cluster_id):
                raise CommandFailed(
                    f"{self.directory.path} is the data of cluster {cluster_id}, and CLUSTER_ID differs"
                )
        nodes = plan_nodes(plan, *self._other_ports())
        variables = output.variables()
        return Description(cluster_id, nodes, {}, variables, plan.is_secure, plan.port, machines)

    def _other_ports(self) -> tuple[int, list[int]]:
        """Return the controller's port and the nodes' ports among themselves. Joined machines know each other's."""
        plan = self._plan
        if plan.machines:
            is_controller = plan.node_ids[0] in plan.voters
            return (plan.port + CONTROLLER_PORT_ABOVE if is_controller else 0), [0] * plan.cores
        used = {plan.port, *plan.ports}
        (controller_port,) = ports_above([plan.port + CONTROLLER_PORT_ABOVE], used)
        return controller_port, ports_above([port + INTERNAL_PORTS_ABOVE for port in plan.ports], used)

    def _moved_cluster_id(self) -> str | None:
        """Return the id of a single node whose data was moved to node-1/data; None if the directory is empty."""
        path = self.directory.path
        entries = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        entries = [name for name in entries if name != "lost+found"]
        if not entries:
            return None
        if META_PROPERTIES in entries:
            old, aside, new = (shlex.quote(f"{path}{end}") for end in ("", "-1", "/node-1"))
            raise CommandFailed(
                f"{path} is the data of a single node; to let it become node 1 of several, move it while it is stopped:"
                f" `mv {old} {aside} && mkdir -p {new} && mv {aside} {new}/data`"
            )
        meta = read_meta_properties(DiskFiles(), str(self.directory.data_path(1))) if entries == ["node-1"] else None
        if meta is None:
            raise CommandFailed(
                f"{path} is not empty and holds no data of `moldau start --cores`; choose another --data-dir"
            )
        if meta.node_id != 1 or self._plan.machines:
            raise CommandFailed(f"{self.directory.data_path(1)} cannot be used: it is the data of node {meta.node_id}")
        return meta.cluster_id

    def _new_cluster_id(self) -> str:
        """Return CLUSTER_ID, or a new id. Joined machines make the same one from their names."""
        if self._environ.get("CLUSTER_ID"):
            return self._environ["CLUSTER_ID"]
        names = ",".join(each.name for each in self._plan.machines)
        return uuid_text(hashlib.sha256(names.encode()).digest()[:16] if names else os.urandom(16))

    def _lay_out(self, description: Description) -> str | None:
        """Write the settings of all nodes; return the password of the admin user if one was made."""
        directory, stores, token_key = self.directory, None, ""
        user = {key: text for key, text in self._texts.items() if key not in _TAKEN_BY_PLAN}
        if self._plan.is_secure:
            from moldau.cli.secure_start import values_to_keep
            from moldau.secure_setup.directory import SecureDirectory

            secured = SecureDirectory(directory.path)
            stores, token_key = secured.stores, self._secured_texts[DELEGATION_TOKEN_SECRET_KEY.name].text
        settings = {
            node.id: node_settings(
                self._plan,
                node,
                description.nodes,
                str(directory.data_path(node.id).absolute()),
                user,
                stores,
                token_key,
            )
            for node in description.nodes
        }
        for each in settings.values():  # raises what is wrong with them before anything is written
            from_texts({key: SettingText(text, "--cores") for key, text in each.items()}, self._environ)
        password = None
        if self._secure_names is not None:
            hosts = Security(self._plan.listen_host, self._plan.advertised_host, self._secure_names)
            password = directory.secure(description, hosts)
            secured.keep(values_to_keep(self._secured_texts, self._plan.port))
        for node_id, each in settings.items():
            directory.node_path(node_id).mkdir(parents=True, exist_ok=True)
            replace_file(directory.properties_path(node_id), HEADER + render(each), PRIVATE_FILE, sync=False)
        directory.save(description)
        return password


_TAKEN_BY_PLAN: Final = frozenset((LISTENERS.name, ADVERTISED_LISTENERS.name, LOG_DIRS.name, LOG_DIR.name))
"""Settings of the user that the plan has read already."""


def _check_stored(path: Path, stored: Description, plan: CoresPlan, machines: tuple[str, ...]) -> None:
    if not stored.shared_port:
        raise CommandFailed(f"{path} is the data of `{stored.start_command}`; start it with that")
    if len(stored.nodes) > plan.cores:
        raise CommandFailed(
            f"{path} holds partitions of {len(stored.nodes)} nodes, and --cores {plan.cores} would leave some of them"
            f" out; start with --cores {len(stored.nodes)} or more"
        )
    if stored.machines != machines:
        before = f"with --machines {','.join(stored.machines)}" if stored.machines else "without --machines"
        raise CommandFailed(
            f"{path} was made {before}, and its machines cannot be changed; start it in the same way, or choose another"
            " --data-dir"
        )
    if stored.nodes[0].id != plan.node_ids[0]:
        raise CommandFailed(f"{path} is the data of node {stored.nodes[0].id}, and this machine has {plan.node_ids[0]}")
    if stored.is_secure != plan.is_secure:
        raise CommandFailed(
            f"{path} is secured; start it with --secure"
            if stored.is_secure
            else f"{path} was made without --secure, and its clients have no passwords; choose another --data-dir"
        )
