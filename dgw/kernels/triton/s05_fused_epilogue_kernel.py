# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
"""fused-epilogue: the tensor-core kernel, with all that follows the product done while the sums are in registers.

D = activation(alpha A B + beta C + bias) + residual. What is not asked for is not compiled.
"""

import triton
import triton.language as tl


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """relu, gelu (erf), gelu-tanh or silu of f32 values; tanh is written with a sigmoid, (1 + tanh z) / 2 = s(2 z)."""
    if ACTIVATION == "relu":
        x = tl.where(x < 0.0, 0.0, x)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu-tanh":
        x = x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    return x


@triton.jit
def fused_epilogue(
    a, b, c, d, bias, residual, m, n, k, lda, ldb, ldc, ldd, ldr, alpha, beta,
    A_T: tl.constexpr, B_T: tl.constexpr, USE_C: tl.constexpr, EVEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr, USE_BIAS: tl.constexpr, USE_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """D = activation(alpha A B + beta C + bias) + residual. A_T, B_T: transposed. EVEN: no masks are needed."""
    tile = tl.program_id(0)
    tiles_n = tl.cdiv(n, BN)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = min(tl.cdiv(m, BM) - first, GROUP_M)
    in_group = tile % (GROUP_M * tiles_n)
    rows = (first + in_group % height) * BM + tl.arange(0, BM)
    cols = in_group // height * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)

    from_a = a + (depth[None, :] * lda + rows[:, None] if A_T else rows[:, None] * lda + depth[None, :])
    from_b = b + (cols[None, :] * ldb + depth[:, None] if B_T else depth[:, None] * ldb + cols[None, :])
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in tl.range(0, k, BK, num_stages=STAGES):
        if EVEN:
            a_tile = tl.load(from_a)
            b_tile = tl.load(from_b)
        else:
            a_tile = tl.load(from_a, mask=(rows[:, None] < m) & (depth[None, :] < k - k0), other=0.0)
            b_tile = tl.load(from_b, mask=(depth[:, None] < k - k0) & (cols[None, :] < n), other=0.0)
        sums = tl.dot(a_tile, b_tile, sums, input_precision=PRECISION)
        from_a += BK * lda if A_T else BK
        from_b += BK if B_T else BK * ldb

    inside = (rows[:, None] < m) & (cols[None, :] < n)
    sums *= alpha
    if USE_C:
        sums += beta * tl.load(c + rows[:, None] * ldc + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    if USE_BIAS:
        sums += tl.load(bias + cols, mask=cols < n, other=0.0).to(tl.float32)[None, :]
    sums = activate(sums, ACTIVATION)
    if USE_RESIDUAL:
        from_residual = residual + rows[:, None] * ldr + cols[None, :]
        sums += tl.load(from_residual, mask=inside, other=0.0).to(tl.float32)
    tl.store(d + rows[:, None] * ldd + cols[None, :], sums.to(d.dtype.element_ty), mask=inside)
