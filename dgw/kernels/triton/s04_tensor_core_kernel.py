# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
"""tensor-core: the double-buffered kernel, with the operands multiplied as they are stored.

tl.dot then uses mma.sync (sm_80 to sm_89), wgmma (sm_90) or tcgen05 (sm_100), all with f32 sums. PRECISION: tf32 for
f32 operands whose last 13 bits may be ignored; 16-bit operands are exact with either.
"""

import triton
import triton.language as tl


@triton.jit
def tensor_core(
    a, b, c, d, bias, residual, m, n, k, lda, ldb, ldc, ldd, ldr, alpha, beta,
    A_T: tl.constexpr, B_T: tl.constexpr, USE_C: tl.constexpr, EVEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """D = alpha A B + beta C. A_T, B_T: stored transposed. EVEN: the tile divides m, n, k: no masks."""
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
    tl.store(d + rows[:, None] * ldd + cols[None, :], sums.to(d.dtype.element_ty), mask=inside)
