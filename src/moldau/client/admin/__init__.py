"""The admin client: topics, configs, replicas, groups, transactions, users, ACLs, quotas, tokens, the quorum.

`cluster_admin.ClusterAdmin` sends a request to any node or to one, and tries again while an error is temporary. The
other modules use it, or a cluster for requests to coordinators. Errors are KafkaErrors; each tool words them itself.
`client/requests` builds the requests. Modules named `…_values` are pure.
"""
