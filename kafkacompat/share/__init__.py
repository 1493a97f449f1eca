"""Records of a partition as share groups consume them (KIP-932): each record in flight with one member of a group."""
