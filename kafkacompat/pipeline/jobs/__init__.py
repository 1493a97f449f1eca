"""The jobs: modules of functions from DataFrame to DataFrame, which use only Spark SQL's built-in functions.

No Python runs on an executor, so a cluster needs only Spark and its Kafka connector. A job knows records and columns.
queries.py decides where they are read and written.
"""
