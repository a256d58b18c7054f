// One warp computes 32 x 32 elements of D. It reads the tile of B by columns, which the padding keeps free of conflicts.
constexpr int PAD = 1;
extern "C" __global__ void column(const float* a, const float* b, const float* c, float* d, int m, int n, int k,
                                  long long lda, long long ldb, long long ldc, long long ldd, float alpha, float beta) {
    __shared__ float tile[32][32 + PAD];
    const int lane = threadIdx.x, row = blockIdx.y * 32 + lane, first = blockIdx.x * 32;
    float sum[32] = {};
    for (int start = 0; start < k; start += 32) {
        for (int i = 0; i < 32; ++i)
            tile[lane][i] = start + i < k && first + lane < n ? b[(start + i) * ldb + first + lane] : 0.0f;
        __syncwarp();
        for (int i = 0; i < 32 && start + i < k; ++i) {
            const float left = row < m ? a[row * lda + start + i] : 0.0f;
#pragma unroll
            for (int j = 0; j < 32; ++j) sum[j] = fmaf(left, tile[j][i], sum[j]);
        }
        __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < 32; ++j)
        if (row < m && first + j < n) d[row * ldd + first + j] = alpha * sum[j];
}
