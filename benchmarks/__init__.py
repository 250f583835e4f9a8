"""What the kernel costs, beside the smallest hand-written Trio code that does the same work."""
