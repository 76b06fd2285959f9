"""Every key that there is: the table, its types and values, and the check of a key that somebody wrote."""
