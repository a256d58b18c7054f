// Threads read the tile of B that other warps write, and nothing makes them wait: the barrier before the loop is missing.
extern "C" __global__ void shared_race(const float* a, const float* b, const float* c, float* d, int m, int n, int k,
                                       long long lda, long long ldb, long long ldc, long long ldd, float alpha,
                                       float beta) {
    __shared__ float tile[16][16];
    const int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (int start = 0; start < k; start += 16) {
        const int inner = start + threadIdx.y;
        tile[threadIdx.y][threadIdx.x] = inner < k && col < n ? b[inner * ldb + col] : 0.0f;  // the write
        for (int i = 0; i < 16 && start + i < k; ++i)
            if (row < m) sum = fmaf(a[row * lda + start + i], tile[i][threadIdx.x], sum);  // the read
        __syncthreads();
    }
    if (row < m && col < n) d[row * ldd + col] = alpha * sum;
}
