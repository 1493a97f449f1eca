"""Clusters of several processes: quorum, replication and failover while clients work."""
