"""The Spark session, one epoch as one job, and what executors need; beside records/ the only place with pyspark."""
