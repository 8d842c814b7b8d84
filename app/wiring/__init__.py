"""Settings become parts: the one place that knows which concrete thing fills which seam."""
