"""The loop: decides, and reaches the world through `Effects` alone."""
