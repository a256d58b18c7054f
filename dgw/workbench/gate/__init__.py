"""Decides whether a change made kernels worse: policy and statistics without a GPU, measuring in pairs of processes."""
