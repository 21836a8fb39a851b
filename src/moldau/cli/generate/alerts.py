"""Alert rules for Prometheus: what is wrong with a cluster, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

CRITICAL: Final = "critical"
WARNING: Final = "warning"


class Alert(NamedTuple):
    name: str
    expression: str
    """With JOB for the name of the scrape job."""
    lasts: str
    """For how long the expression must hold."""
    severity: str
    summary: str
    todo: str


ALERTS: Final = (
    Alert(
        "MoldauNodeDown",
        'up{job="JOB"} == 0',
        "1m",
        CRITICAL,
        "{{ $labels.instance }} does not answer.",
        "Look whether its process runs, and at the end of its log.",
    ),
    Alert(
        "MoldauNoActiveController",
        # Nodes that are down have no count, only `up`: without `or`, nothing would be compared if all controllers are.
        '(sum by (job) (kafka_controller_kafkacontroller_activecontrollercount{job="JOB"})'
        ' or 0 * sum by (job) (up{job="JOB"})) != 1',
        "1m",
        CRITICAL,
        "The cluster has {{ $value }} active controllers.",
        "A majority of the controllers must run: `moldau cluster describe` shows the quorum.",
    ),
    Alert(
        "MoldauPartitionsOffline",
        'sum by (job) (kafka_controller_kafkacontroller_offlinepartitionscount{job="JOB"}) > 0',
        "1m",
        CRITICAL,
        "{{ $value }} partitions have no leader: clients can neither write nor read them.",
        "Start the brokers that have their replicas; `moldau cluster describe` shows which.",
    ),
    Alert(
        "MoldauPartitionsUnderMinIsr",
        'sum by (job) (kafka_server_replicamanager_underminisrpartitioncount{job="JOB"}) > 0',
        "1m",
        CRITICAL,
        "{{ $value }} partitions have fewer in-sync replicas than min.insync.replicas: producers with acks=all fail.",
        "Start the missing brokers, or find out why their replicas are behind.",
    ),
    Alert(
        "MoldauPartitionsUnderReplicated",
        'sum by (job) (kafka_server_replicamanager_underreplicatedpartitions{job="JOB"}) > 0',
        "5m",
        WARNING,
        "{{ $value }} partitions have replicas that are not in sync.",
        "Look for a broker that is down, slow or out of disk.",
    ),
    Alert(
        "MoldauUncleanLeaderElection",
        'sum by (job) (increase(kafka_controller_controllerstats_uncleanleaderelections_total{job="JOB"}[10m])) > 0',
        "0m",
        CRITICAL,
        "A replica that was not in sync became a leader: acknowledged records may be lost.",
        "Find out why all in-sync replicas were gone. unclean.leader.election.enable=false prevents it.",
    ),
    Alert(
        "MoldauConsumerGroupBehind",
        'max by (consumergroup, topic) (moldau_consumergroup_lag_seconds{job="JOB"}) > 300',
        "5m",
        WARNING,
        "Group {{ $labels.consumergroup }} is {{ $value | humanizeDuration }} behind in {{ $labels.topic }}.",
        "`moldau group describe {{ $labels.consumergroup }}` shows which member reads what.",
    ),
    Alert(
        "MoldauDiskAlmostFull",
        'moldau_data_dir_free_bytes{job="JOB"} / moldau_data_dir_size_bytes{job="JOB"} < 0.1',
        "5m",
        CRITICAL,
        "{{ $labels.instance }} has {{ $value | humanizePercentage }} of its disk left.",
        "Add disk, or shorten retention.ms or retention.bytes of large topics.",
    ),
    Alert(
        "MoldauDiskFullWithinADay",
        'predict_linear(moldau_data_dir_free_bytes{job="JOB"}[6h], 86400) < 0',
        "30m",
        WARNING,
        "The disk of {{ $labels.instance }} will be full within a day if it goes on like this.",
        "Add disk, or shorten retention.ms or retention.bytes of large topics.",
    ),
    Alert(
        "MoldauOpenFilesAlmostUsedUp",
        'process_open_fds{job="JOB"} / process_max_fds{job="JOB"} > 0.85',
        "5m",
        WARNING,
        "{{ $labels.instance }} uses {{ $value | humanizePercentage }} of the files it may open.",
        "Raise the limit (ulimit -n, LimitNOFILE), or look who opens so many connections.",
    ),
    Alert(
        "MoldauNodeStarved",
        'rate(moldau_node_paused_seconds_total{job="JOB"}[5m]) > 0.05',
        "5m",
        WARNING,
        "{{ $labels.instance }} did not run for {{ $value | humanizePercentage }} of the time.",
        "Give the machine more processor time, or move other work away.",
    ),
    Alert(
        "MoldauCompactionGaveUp",
        'moldau_cleaner_given_up_logs{job="JOB"} > 0',
        "5m",
        WARNING,
        "{{ $labels.instance }} no longer compacts {{ $value }} logs: they grow without end.",
        "The node's log says which and why; a restart tries again.",
    ),
    Alert(
        "MoldauManyFailedLogins",
        'sum by (instance) (increase(moldau_limits_total{job="JOB",limit="authentication.failed"}[5m])) > 100',
        "0m",
        WARNING,
        'About {{ $value | printf "%.0f" }} logins at {{ $labels.instance }} failed within five minutes.',
        "The audit log (logger moldau.audit) says from which addresses.",
    ),
)


def rules_text(job: str) -> str:
    """Return the file of rules. Its texts are JSON strings, each of which is also a string of YAML."""
    return "".join(f"{line}\n" for line in _lines(job))


def _lines(job: str) -> Iterator[str]:
    yield "# Alert rules for a Moldau cluster. In prometheus.yml: rule_files: [this file]"
    yield "groups:"
    yield "  - name: moldau"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {json.dumps(alert.expression.replace('JOB', job))}"
        yield f"        for: {alert.lasts}"
        yield f"        labels: {{severity: {alert.severity}}}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(alert.summary)}"
        yield f"          description: {json.dumps(alert.todo)}"
