"""The command `treadle`."""
