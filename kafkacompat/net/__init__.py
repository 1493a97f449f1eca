"""Listeners, connections and the loop's side of the ports: the shell that moves bytes between sockets and a dispatcher."""
