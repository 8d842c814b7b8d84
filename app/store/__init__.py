"""All SQL. Other rooms see domain values, never rows or connections."""
