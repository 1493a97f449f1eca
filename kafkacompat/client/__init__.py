"""A client of any cluster, for commands and console: any message of any API, to any broker.

`exchange` and `brokers` decide: bytes, versions, logins, whom to ask, when again. `blocking` and `trio_connection` move the bytes.
"""
