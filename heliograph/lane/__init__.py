"""Runs one Spark task: copies partitions, settles what is unclear, writes positions; knows no flow and no driver."""
