"""Requests and what became of them, for whoever watches a node: typed, without secrets, with the reason of each refusal."""
