"""The APIs of the quorum, for the controllers' listener: the quorum driver answers each request.

`raft_apis` has those with which nodes talk to each other. `quorum_admin` has those of administrators: brokers forward
them, as they do with requests that the controller decides.
"""
