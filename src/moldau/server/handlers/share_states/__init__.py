"""The APIs of share coordinators, by which nodes keep the states of share groups. Begin with `state_handler`."""
