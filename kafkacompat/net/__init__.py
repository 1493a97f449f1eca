"""Listeners, connections and the trio side of the ports: the shell that moves bytes between sockets and a dispatcher."""
