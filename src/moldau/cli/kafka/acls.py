"""kafka-acls: lists, adds and removes ACLs, with the flags and the output of Kafka's tool."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from moldau.base.errors import KafkaError
from moldau.cli.flags import Arguments, Flag, ToolFlags, UsageError
from moldau.cli.kafka.acl.selection import (
    AccessControlEntry,
    ResourcePattern,
    acl_filter,
    binding,
    check_principal,
    entries_by_pattern,
    parse_pattern_type,
    patterns,
    split,
)
from moldau.cli.kafka.connection import properties
from moldau.cli.kafka.connection.admin import connect
from moldau.cli.kafka.java.exceptions import WRAPPED, exception_text
from moldau.cli.kafka.tool import ToolFailed, run
from moldau.security.acls.bindings import AclBinding, AclFilter, PatternType

if TYPE_CHECKING:
    from moldau.client.admin.acls import Acls

ACTIONS: Final = ("list", "add", "remove")
FLAGS = ToolFlags(
    "This tool helps to manage acls on kafka.",
    (
        Flag("bootstrap-server", "Brokers to connect to, HOST:PORT,…", "server to connect to"),
        Flag("bootstrap-controller", "Controllers to connect to, HOST:PORT,…", "controller to connect to"),
        Flag("command-config", "A properties file with settings of the client.", "command-config"),
        Flag("add", "Add ACLs."),
        Flag("remove", "Remove ACLs."),
        Flag("list", "List ACLs, of the named resources or of all."),
        Flag("topic", "A topic; '*' stands for all. Repeatable.", "topic"),
        Flag("cluster", "The cluster itself."),
        Flag("group", "A consumer group; '*' stands for all. Repeatable.", "group"),
        Flag("transactional-id", "A transactional id; '*' stands for all. Repeatable.", "transactional-id"),
        Flag("delegation-token", "A delegation token; '*' stands for all. Repeatable.", "delegation-token"),
        Flag("user-principal", "A user as the resource, for CreateTokens and DescribeTokens.", "user-principal"),
        Flag(
            "resource-pattern-type",
            "literal or prefixed. To list and remove also any, which finds both for the same name, and match, which"
            " finds every pattern that covers the name.",
            "ANY|MATCH|LITERAL|PREFIXED",
            default="LITERAL",
        ),
        Flag(
            "operation",
            "What is allowed or denied: Read, Write, Create, Delete, Alter, Describe, ClusterAction, DescribeConfigs,"
            " AlterConfigs, IdempotentWrite, CreateTokens, DescribeTokens, TwoPhaseCommit or All. Repeatable.",
            "String",
            default="All",
        ),
        Flag("allow-principal", "Who is allowed, as User:name; User:'*' is everybody. Repeatable.", "allow-principal"),
        Flag("deny-principal", "Who is denied. A denial is stronger than any permission.", "deny-principal"),
        Flag("allow-host", "The address from which --allow-principal may connect; default: any.", "allow-host"),
        Flag("deny-host", "The address from which --deny-principal may not connect; default: any.", "deny-host"),
        Flag("principal", "With --list: only the ACLs of this principal. Repeatable.", "principal"),
        Flag("producer", "Write, Describe and Create on topics, Write and Describe on transactional ids."),
        Flag("consumer", "Read and Describe on topics, Read on groups."),
        Flag("idempotent", "With --producer: IdempotentWrite on the cluster too."),
        Flag("force", "Do not ask before ACLs are removed."),
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    return run("kafka-acls", FLAGS, _main, argv)


def _main(arguments: Arguments) -> int:
    _check(arguments)
    action = next(name for name in ACTIONS if arguments.has(name))
    pattern_entries = {} if action == "list" else entries_by_pattern(arguments)
    if action == "add":
        _check_addition(arguments, pattern_entries)
    if action == "list":
        patterns(arguments)  # fail on a wrong pattern type before connecting
    java_config = properties.load(arguments.single_value("command-config"))
    brokers, controllers = (arguments.single_value(f"bootstrap-{kind}") for kind in ("server", "controller"))
    from moldau.client.admin.acls import Acls

    try:
        with connect(brokers, controllers, java_config) as admin:
            acls = Acls(admin)
            if action == "list":
                _list(acls, arguments)
            elif action == "add":
                _add(acls, pattern_entries)
            else:
                _remove(acls, pattern_entries, arguments.has("force"))
    except KafkaError as error:
        print(f"Error while executing ACL command: {WRAPPED}{exception_text(error)}")
        return 1
    except ToolFailed as error:
        print(f"Error while executing ACL command: {error}")
        return 1
    return 0


def _check(arguments: Arguments) -> None:
    addresses = sum(map(arguments.has, ("bootstrap-server", "bootstrap-controller")))
    if addresses != 1:
        one_of = "One" if not addresses else "Only one"
        raise UsageError(f"{one_of} of --bootstrap-server or --bootstrap-controller must be specified")
    if sum(map(arguments.has, ACTIONS)) != 1:
        raise UsageError("Command must include exactly one action: --list, --add, --remove. ")
    hosts_and_principals = ("allow-host", "allow-principal", "deny-host", "deny-principal")
    arguments.forbid_together("list", "producer", "consumer", *hosts_and_principals)
    for role in ("producer", "consumer"):
        arguments.forbid_together(role, "operation", "deny-principal", "deny-host")
    if arguments.has("principal") and not arguments.has("list"):
        raise UsageError("The --principal option is only available if --list is set")
    if arguments.has("producer") and not arguments.has("topic"):
        raise UsageError("With --producer you must specify a --topic")
    if arguments.has("idempotent") and not arguments.has("producer"):
        raise UsageError("The --idempotent option is only available if --producer is set")
    others = not arguments.has("producer") and (arguments.has("cluster") or arguments.has("transactional-id"))
    if arguments.has("consumer") and (not (arguments.has("topic") and arguments.has("group")) or others):
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option"
            " should be specified."
        )


def _check_addition(
    arguments: Arguments, pattern_entries: Mapping[ResourcePattern, Sequence[AccessControlEntry]]
) -> None:
    pattern_type = parse_pattern_type(arguments.single_value("resource-pattern-type") or "")
    if pattern_type in (PatternType.ANY, PatternType.MATCH):
        raise UsageError(f"A '--resource-pattern-type' value of '{pattern_type.name}' is not valid when adding acls.")
    if not all(pattern_entries.values()):
        raise UsageError("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")


def _list(acls: Acls, arguments: Arguments) -> None:
    named = patterns(arguments)
    filters = [acl_filter(pattern) for pattern in named] or [AclFilter()]
    found = sorted({acl for each in filters for acl in acls.find(each)})
    principals = [check_principal(text) for text in arguments.values_of("principal")]
    if not principals:
        _print_current(found)
    for principal in dict.fromkeys(principals):
        print(f"ACLs for principal `{principal}`")
        _print_current(acl for acl in found if acl.principal == principal)


def _print_current(acls: Iterable[AclBinding]) -> None:
    by_pattern: dict[ResourcePattern, list[AccessControlEntry]] = {}
    for pattern, entry in map(split, acls):
        by_pattern.setdefault(pattern, []).append(entry)
    for pattern, entries in by_pattern.items():
        print(f"Current ACLs for resource `{pattern}`:\n{_lines(entries)}\n")


def _add(acls: Acls, pattern_entries: Mapping[ResourcePattern, Sequence[AccessControlEntry]]) -> None:
    for pattern, entries in pattern_entries.items():
        existing = set(acls.find(acl_filter(pattern)))
        new = []
        for entry in entries:
            if binding(pattern, entry) in existing:
                print(f"Acl (pattern={pattern}, entry={entry}) already exists.")
            else:
                new.append(entry)
        if new:
            print(f"Adding ACLs for resource `{pattern}`: \n {_lines(new)}\n")
            acls.create(binding(pattern, entry) for entry in new)


def _remove(
    acls: Acls, pattern_entries: Mapping[ResourcePattern, Sequence[AccessControlEntry]], is_forced: bool
) -> None:
    for pattern, entries in pattern_entries.items():
        if entries:
            named = f"ACLs: \n {_lines(entries)}\n from resource filter `{pattern}`"
            question = f"Are you sure you want to remove {named}? (y/n)"
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
        if is_forced or _confirm(question):
            acls.delete([acl_filter(pattern, entry) for entry in entries] or [acl_filter(pattern)])


def _confirm(question: str) -> bool:
    print(question, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        raise ToolFailed("there is nobody to answer; --force removes without asking")
    return answer.strip().lower() == "y"


def _lines(entries: Iterable[AccessControlEntry]) -> str:
    return "\n".join(f"\t{entry}" for entry in entries)


if __name__ == "__main__":
    sys.exit(main())
