"""A session as a file: written for programs and for people, and read back."""
