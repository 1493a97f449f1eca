"""The metadata quorum as in KRaft: roles, the durable election state, the metadata log and its snapshots."""
