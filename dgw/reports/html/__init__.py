"""A run as one HTML file that needs nothing else: no network, no other file, and no script to be read."""
