"""The jobs: each a module of functions from DataFrame to DataFrame, made of Spark SQL's built-in functions alone.

No Python runs on an executor, so that a cluster needs nothing but Spark and its Kafka connector. A job knows records and
columns, not where they are read or written (that is queries.py).
"""
