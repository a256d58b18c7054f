// The reference of a GEMM in double precision, and the magnitude that its error bound multiplies.
//
// Operands of any type and strides; sums of integer operands are exact below 2^53. One block computes 64 x 64 elements.

#include "elements.cuh"

struct Operand {
    u64 base;  // address of the first element; 0: the operand does not exist
    i64 row_stride, col_stride, item_stride;  // elements
    i64 dtype;
};

struct Task {
    Operand a, b, c, bias, residual;
    i64 rows, n, k;        // rows: of this chunk
    i64 first_row, first_item;
    i64 activation;        // 0 none, 1 relu, 2 gelu, 3 gelu-tanh, 4 silu
    double alpha, beta;
    u64 value, magnitude, linear;  // addresses of double[items][rows][n]; linear may be 0: not wanted
};

__device__ __forceinline__ double load(const Operand& o, i64 item, i64 row, i64 col) {
    return load_element(o.base, item * o.item_stride + row * o.row_stride + col * o.col_stride, o.dtype);
}

// The formulas of operands/references.py; gelu's tail keeps its relative accuracy through erfc.
__device__ double activate(double x, i64 which) {
    switch (which) {
        case 1: return x > 0.0 || x != x ? x : 0.0;
        case 2: return 0.5 * x * erfc(-x * 0.70710678118654752440);
        case 3: return x / (1.0 + exp(-2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
        case 4: return x / (1.0 + exp(-x));
        default: return x;
    }
}

// What follows the sum; called, not inlined, so that the 32 accumulators stay in registers.
__device__ __noinline__ void finish(const Task& task, i64 item, i64 r, i64 col, double sum, double size) {
    const i64 row = task.first_row + r, out = ((item - task.first_item) * task.rows + r) * task.n + col;
    double value = task.alpha * sum, magnitude = fabs(task.alpha) * size;
    if (task.c.base) {
        const double c = task.beta * load(task.c, item, row, col);
        value += c, magnitude += fabs(c);
    }
    if (task.bias.base) {
        const double bias = load(task.bias, 0, 0, col);
        value += bias, magnitude += fabs(bias);
    }
    if (task.linear) ((double*)task.linear)[out] = value;
    value = activate(value, task.activation);
    if (task.residual.base) {
        const double residual = load(task.residual, item, row, col);
        value += residual, magnitude += fabs(residual);
    }
    ((double*)task.value)[out] = value;
    ((double*)task.magnitude)[out] = magnitude;
}

constexpr int TILE = 64, DEPTH = 16, SIDE = 4;

// 256 threads; thread t owns rows t / 16 + 16 i and columns t % 16 + 16 j of its tile.
extern "C" __global__ void __launch_bounds__(256) reference(const __grid_constant__ Task task) {
    __shared__ double tile_a[DEPTH][TILE + 1], tile_b[DEPTH][TILE + 1];
    const int t = threadIdx.x;
    const i64 item = task.first_item + blockIdx.z;
    const i64 top = (i64)blockIdx.y * TILE, left = (i64)blockIdx.x * TILE;
    double sum[SIDE][SIDE] = {}, size[SIDE][SIDE] = {};
    for (i64 k0 = 0; k0 < task.k; k0 += DEPTH) {
        for (int e = t; e < TILE * DEPTH; e += 256) {
            const bool a_along_k = task.a.col_stride == 1, b_along_k = task.b.row_stride == 1;
            const int ak = a_along_k ? e % DEPTH : e / TILE, ar = a_along_k ? e / DEPTH : e % TILE;
            const int bk = b_along_k ? e % DEPTH : e / TILE, bc = b_along_k ? e / DEPTH : e % TILE;
            const bool a_inside = top + ar < task.rows && k0 + ak < task.k;
            const bool b_inside = left + bc < task.n && k0 + bk < task.k;
            tile_a[ak][ar] = a_inside ? load(task.a, item, task.first_row + top + ar, k0 + ak) : 0.0;
            tile_b[bk][bc] = b_inside ? load(task.b, item, k0 + bk, left + bc) : 0.0;
        }
        __syncthreads();
        const int depth = task.k - k0 < DEPTH ? (int)(task.k - k0) : DEPTH;  // no 0 * Inf from beyond the edge
        for (int k = 0; k < depth; ++k) {
            double a[SIDE], b[SIDE];
#pragma unroll
            for (int i = 0; i < SIDE; ++i) a[i] = tile_a[k][t / 16 + 16 * i], b[i] = tile_b[k][t % 16 + 16 * i];
#pragma unroll
            for (int i = 0; i < SIDE; ++i)
#pragma unroll
                for (int j = 0; j < SIDE; ++j) {
                    sum[i][j] = fma(a[i], b[j], sum[i][j]);
                    size[i][j] = fma(fabs(a[i]), fabs(b[j]), size[i][j]);
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < SIDE; ++i)
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const i64 r = top + t / 16 + 16 * i, col = left + t % 16 + 16 * j;
            if (r < task.rows && col < task.n) finish(task, item, r, col, sum[i][j], size[i][j]);
        }
}
