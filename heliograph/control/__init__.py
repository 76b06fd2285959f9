"""What the driver does beside the copying: heartbeats, checkpoints, group sync. Rules are pure, loops do the IO."""
