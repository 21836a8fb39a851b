"""How the tools reach a cluster: client properties, admin and consumer clients, leaders, controllers."""
