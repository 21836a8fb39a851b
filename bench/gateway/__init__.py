"""How fast the gateway for devices is: HTTP."""
