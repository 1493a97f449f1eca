"""The assembled node: the process, the parts that both roles share, the controller role, the broker role, the log directories."""
