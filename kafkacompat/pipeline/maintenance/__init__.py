"""Merges small files of tables, and removes rows of old dates, beside the run that writes them or without one.

`rounds` decides, `parquet` carries it out for tables of Spark's file sink, `table_formats` for Delta and Iceberg.
"""
