"""The CUDA family: one idea a stage, for sm_80 and newer."""
