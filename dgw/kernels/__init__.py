"""The ladder of GEMM kernels and its baselines, as declarations."""
