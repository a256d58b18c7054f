// Fills operands with counter-based data (operands/data.py says which), and looks at bytes that nothing may change.
//
// Every structure holds 8-byte members only, so that the host can pack it without knowing about padding.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct Point {
    i64 modulus, residue, stride, shift;
    u64 bits;
};

struct Filling {
    u64 base, table, line_table;  // addresses; line_table 0: no line
    i64 items, rows, cols;
    i64 item_stride, row_stride, col_stride;  // elements
    u64 seed, operand;
    i64 line_axis, line_modulus, line_residue;
    i64 points;
    Point point[4];
};

__device__ __forceinline__ u32 hash16(u64 seed, u32 operand, u64 index) {
    u64 z = seed + 0x9E3779B97F4A7C15ull * (operand + 1ull) + 0xD1B54A32D192ED03ull * (index >> 32);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    u32 x = (u32)index ^ (u32)z;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) + (u32)(z >> 32);
    return (x * 0x846CA68Bu) >> 16;
}

template <typename T>
__device__ __forceinline__ void fill_elements(const Filling& f) {
    const i64 inner = f.col_stride == 1 ? f.cols : f.rows;  // the contiguous direction goes to neighbouring threads
    const i64 outer = f.col_stride == 1 ? f.rows : f.cols;
    const i64 total = f.items * f.rows * f.cols;
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 t = (i64)blockIdx.x * blockDim.x + threadIdx.x; t < total; t += step) {
        const i64 line = t / inner, along = t - line * inner;
        const i64 item = line / outer, across = line - item * outer;
        const i64 row = f.col_stride == 1 ? across : along, col = f.col_stride == 1 ? along : across;
        const u32 slot = hash16(f.seed, (u32)f.operand, (u64)((item * f.rows + row) * f.cols + col));
        const i64 at = f.line_axis ? col : row;
        const bool on_line = f.line_table != 0 && at % f.line_modulus == f.line_residue;
        T value = ((const T*)(on_line ? f.line_table : f.table))[slot];
        for (i64 p = 0; p < f.points; ++p) {
            const Point& point = f.point[p];
            if (row % point.modulus != point.residue) continue;
            i64 column = (point.stride * row + point.shift) % f.cols;
            if (column < 0) column += f.cols;
            if (column == col) value = (T)point.bits;
        }
        ((T*)f.base)[item * f.item_stride + row * f.row_stride + col * f.col_stride] = value;
    }
}

extern "C" __global__ void fill_8(Filling f) { fill_elements<u8>(f); }
extern "C" __global__ void fill_16(Filling f) { fill_elements<u16>(f); }
extern "C" __global__ void fill_32(Filling f) { fill_elements<u32>(f); }
extern "C" __global__ void fill_64(Filling f) { fill_elements<u64>(f); }

// *result += a sum over all 8-byte words that depends on each word and on its place. `size` is a multiple of 8.
extern "C" __global__ void checksum(const u64* words, i64 size, u64* result) {
    u64 sum = 0;
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size / 8; i += step) {
        u64 z = words[i] + 0x9E3779B97F4A7C15ull * (u64)(i + 1);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        sum += z ^ (z >> 31);
    }
    atomicAdd(result, sum);
}

// result[0] += bytes outside the elements that are no longer 0xFF; result[1] = min(offset of such a byte in the region).
// The elements are `lines` runs of `line_bytes` bytes, `pitch` apart, the first at offset `first`.
extern "C" __global__ void untouched(const u64* region, i64 size, i64 first, i64 line_bytes, i64 pitch, i64 lines,
                                     u64* result) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size / 8; i += step) {
        const u64 word = region[i];
        if (word == ~0ull) continue;
        for (int b = 0; b < 8; ++b) {
            if (((word >> (8 * b)) & 0xFF) == 0xFF) continue;
            const i64 offset = 8 * i + b, into = offset - first;
            const bool element = into >= 0 && into / pitch < lines && into % pitch < line_bytes;
            if (element) continue;
            atomicAdd(&result[0], 1ull);
            atomicMin(&result[1], (u64)offset);
        }
    }
}
