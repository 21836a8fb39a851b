"""`moldau generate`: files for the programs that watch a cluster: Prometheus, its alerts, Grafana.

It only writes text and asks no broker. Begin with `commands`; `panels` has what the dashboard shows, `alerts` the
rules.
"""
