"""A node, assembled: the server of a process, what its roles share, its controller and its broker role, its log directories."""
