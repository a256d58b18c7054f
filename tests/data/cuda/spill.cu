extern "C" __global__ void __launch_bounds__(1024) spill(float* d, int n) {
    float x[100];
    for (int i = 0; i < 100; ++i) x[i] = d[i * n + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < n; ++j)
        for (int i = 0; i < 100; ++i) x[i] = x[i] * x[(i + 7) % 100] + d[j];
    for (int i = 0; i < 100; ++i) d[i * n + threadIdx.x] = x[i];
}

extern "C" __global__ void copy(float* d, const float* s) { d[threadIdx.x] = s[threadIdx.x]; }
