"""What the ladder is measured against, declared like any variant."""
