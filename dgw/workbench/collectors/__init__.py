"""One file per way to obtain numbers."""
