"""dgw: why is this matrix multiplication as fast as it is, and what would make it faster?"""

__version__ = "0.1.0"
