"""The APIs of the group coordinator."""
