"""The ladder on Hopper: tiles by the copy engine (TMA), multiplication by warpgroups (wgmma)."""
