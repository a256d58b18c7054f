# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, misc"
"""persistent: the fused kernel, in programs that stay on their SM and take one tile after another.

There are as many programs as fit the device. With DESCRIPTORS, tiles of A and B are fetched by the tensor memory
accelerator, which needs one thread and no address registers and fills what lies outside with zeros; STORE_DESCRIPTOR
lets it write D as well, in SUBTILES column blocks so that less shared memory is needed. FLATTEN makes one loop of the
loop over tiles and the loop over k, so that the loads of the next tile start before this tile is stored.
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
def finish(
    sums, c, bias, residual, m, n, ldc, ldr, alpha, beta, rows, cols,
    USE_C: tl.constexpr, USE_BIAS: tl.constexpr, USE_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """activation(alpha sums + beta C + bias) + residual at `rows` x `cols`."""
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
    return sums


@triton.jit
def load_tile(
    operand, descriptor, ld, row0, col0, height, width,
    T: tl.constexpr, EVEN: tl.constexpr, DESCRIPTORS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The ROWS x COLS tile at (row0, col0) of a height x width matrix, zero outside. T: stored transposed."""
    if DESCRIPTORS:
        tile = descriptor.load([col0, row0]).T if T else descriptor.load([row0, col0])
    else:
        rows = row0 + tl.arange(0, ROWS)
        cols = col0 + tl.arange(0, COLS)
        source = operand + (cols[None, :] * ld + rows[:, None] if T else rows[:, None] * ld + cols[None, :])
        if EVEN:
            tile = tl.load(source)
        else:
            tile = tl.load(source, mask=(rows[:, None] < height) & (cols[None, :] < width), other=0.0)
    return tile


@triton.jit
def describe(
    operand, height, width, ld,
    T: tl.constexpr, WANTED: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A tensor descriptor of a height x width matrix with ROWS x COLS tiles; the bare pointer unless WANTED."""
    if not WANTED:
        return operand
    elif T:  # noqa: RET505
        return tl.make_tensor_descriptor(operand, shape=[width, height], strides=[ld, 1], block_shape=[COLS, ROWS])
    else:
        return tl.make_tensor_descriptor(operand, shape=[height, width], strides=[ld, 1], block_shape=[ROWS, COLS])


@triton.jit
def persistent(
    a, b, c, d, bias, residual, m, n, k, lda, ldb, ldc, ldd, ldr, alpha, beta,
    A_T: tl.constexpr, B_T: tl.constexpr, USE_C: tl.constexpr, EVEN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr, USE_BIAS: tl.constexpr, USE_RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    DESCRIPTORS: tl.constexpr, STORE_DESCRIPTOR: tl.constexpr, SUBTILES: tl.constexpr, FLATTEN: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """D = activation(alpha A B + beta C + bias) + residual. A_T, B_T: transposed. EVEN: no masks are needed."""
    a_descriptor = describe(a, m, k, lda, A_T, DESCRIPTORS, BM, BK)
    b_descriptor = describe(b, k, n, ldb, B_T, DESCRIPTORS, BK, BN)
    d_descriptor = describe(d, m, n, ldd, False, STORE_DESCRIPTOR, BM, BN // SUBTILES)
    tiles_m, tiles_n, steps = tl.cdiv(m, BM), tl.cdiv(n, BN), tl.cdiv(k, BK)
    in_group = GROUP_M * tiles_n

    for tile in tl.range(
        tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE
    ):
        first = tile // in_group * GROUP_M
        height = min(tiles_m - first, GROUP_M)
        row0 = (first + tile % in_group % height) * BM
        col0 = tile % in_group // height * BN
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        for step in tl.range(0, steps, num_stages=STAGES):
            a_tile = load_tile(a, a_descriptor, lda, row0, step * BK, m, k, A_T, EVEN, DESCRIPTORS, BM, BK)
            b_tile = load_tile(b, b_descriptor, ldb, step * BK, col0, k, n, B_T, EVEN, DESCRIPTORS, BK, BN)
            sums = tl.dot(a_tile, b_tile, sums, input_precision=PRECISION)

        rows = row0 + tl.arange(0, BM)
        WIDTH: tl.constexpr = BN // SUBTILES
        if SUBTILES == 2:
            halves = tl.permute(tl.reshape(sums, (BM, 2, WIDTH)), (0, 2, 1)).split()
        else:
            halves = (sums,)
        for part in tl.static_range(SUBTILES):
            cols = col0 + part * WIDTH + tl.arange(0, WIDTH)
            values = finish(
                halves[part], c, bias, residual, m, n, ldc, ldr, alpha, beta, rows, cols,
                USE_C, USE_BIAS, USE_RESIDUAL, ACTIVATION,
            )  # fmt: skip
            values = values.to(d.dtype.element_ty)
            if STORE_DESCRIPTOR:
                d_descriptor.store([row0, col0 + part * WIDTH], values)
            else:
                inside = (rows[:, None] < m) & (cols[None, :] < n)
                tl.store(d + rows[:, None] * ldd + cols[None, :], values, mask=inside)
