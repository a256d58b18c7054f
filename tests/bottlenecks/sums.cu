// f32, row-major A and B. Each of 16 x 16 threads keeps SIDE x SIDE sums: 2 SIDE values from shared memory for
// SIDE * SIDE multiply-adds. The lanes of a warp are 16 columns by 2 rows. DOWN: they load B down its columns.
constexpr int EDGE = 16 * SIDE, DEPTH = 16;

extern "C" __global__ void __launch_bounds__(256)
sums(const float* a, const float* b, float* d, int n, int k, float alpha) {
    __shared__ float left[DEPTH][EDGE + 1], right[DEPTH][EDGE + DOWN];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * EDGE, col = blockIdx.x * EDGE;
    float sum[SIDE][SIDE] = {};
    for (int from = 0; from < k; from += DEPTH) {
        for (int i = y; i < EDGE; i += 16) left[x][i] = a[(row + i) * k + from + x];
        for (int i = 0; i < EDGE; i += 16) {
            const int across = i + (DOWN ? y : x), down = DOWN ? x : y;
            right[down][across] = b[(from + down) * n + col + across];
        }
        __syncthreads();
        for (int p = 0; p < DEPTH; ++p)
            for (int i = 0; i < SIDE; ++i)
                for (int j = 0; j < SIDE; ++j) sum[i][j] += left[p][y + 16 * i] * right[p][x + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < SIDE; ++i)
        for (int j = 0; j < SIDE; ++j) d[(row + y + 16 * i) * n + col + x + 16 * j] = alpha * sum[i][j];
}
