"""How the tools connect to a cluster: client properties, admin and consumer clients, leaders, controllers."""
