// Reads eight bytes from an address that is a multiple of four only.
extern "C" __global__ void misaligned(float* a, const float* b, const float* c, float* d, int m, int n, int k, long long lda,
                                   long long ldb, long long ldc, long long ldd, float alpha, float beta) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || col >= n) return;
    float left, right;
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(left), "=f"(right) : "l"(a + 1));
    float sum = 0.0f * (left + right);  // used, so that the load stays
    for (int i = 0; i < k; ++i) sum = fmaf(a[row * lda + i], b[i * ldb + col], sum);
    d[row * ldd + col] = alpha * sum;
}
