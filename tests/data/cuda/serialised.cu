// The accumulator is touched while the asynchronous product may still write it, which ptxas repairs and remarks upon.
extern "C" __global__ void __launch_bounds__(128) serialised(float* d, unsigned long long a, unsigned long long b, int n) {
    float c[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    for (int i = 0; i < n; ++i) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile(
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(a), "l"(b));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        c[i & 3] += 1.0f;
    }
    for (int i = 0; i < 4; ++i) d[threadIdx.x * 4 + i] = c[i];
}
