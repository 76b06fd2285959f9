"""One Spark task: copies partitions, settles what is unclear, writes positions; knows nothing of flows or the driver."""
