// Returns at once: D stays as it was.
extern "C" __global__ void writes_nothing(float* a, const float* b, const float* c, float* d, int m, int n, int k, long long lda,
                                   long long ldb, long long ldc, long long ldd, float alpha, float beta) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
}
