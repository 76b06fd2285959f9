"""All flows together: the plan of an epoch, shares of rates, and the driver's loop."""
