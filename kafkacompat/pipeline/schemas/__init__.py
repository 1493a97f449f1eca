"""Records in a schema registry's wire format: the registry's HTTP API, and Avro and Protobuf as the fields of a job.

The same code reads a record in a test, in `pipeline try` and in Spark's Python workers.
"""
