// The verdict of operands/bounds.py on a chunk of D: the worst element, how many are wrong, and the sums for the limit
// on the relative Frobenius error. Each block leaves one Partial; the host adds them up in order.

#include "elements.cuh"

struct Comparison {
    u64 d;  // address of D's first element
    i64 row_stride, col_stride, item_stride, dtype;
    i64 items, rows, n, first_item, first_row;
    u64 value, magnitude, linear;  // as reference.cu left them; linear may be 0
    double coefficient, lipschitz, evaluation;
    double exact_limit, roundoff, floor, smallest, largest, threshold;
    i64 saturates, integer, activation;
    u64 scale;  // float: of a quantised D, one or one a row; 0: D is not quantised
    i64 scale_stride;
    double zero_point;
    u64 partials;  // Partial[gridDim.x]
};

struct Partial {
    double excess;  // error / bound of the worst element; Inf where no number says how wrong it is
    i64 index;      // its place in the chunk; -1: this block saw no element
    double error, bound, found, expected;
    i64 wrong, unwritten, finite;
    double error_squares, value_squares;
};

struct Verdict {
    double error, bound, excess, found, expected;
    bool finite;
};

// `step` is the scale of a quantised D, else 0. Its factor's reciprocal and the product with it are roundings of f32.
__device__ Verdict judge(const Comparison& c, double stored, double step, double value, double magnitude, double linear) {
    const bool quantised = step != 0;
    const double unit = quantised ? step : 1.0, shift = quantised ? c.zero_point : 0.0, real = (stored - shift) * unit;
    double before = c.lipschitz * (c.coefficient * magnitude) + (c.evaluation > 0 ? c.evaluation * fabs(linear) : 0.0);
    if (quantised) before += 2 * 5.9604644775390625e-8 * fabs(value);
    double bound = before + c.roundoff * (fabs(value) + before) + c.floor * unit, expected = value;
    const bool exact = magnitude <= c.exact_limit;
    if (exact) bound = 0;
    if (c.saturates && value == value)
        expected = fmin(fmax(expected, (c.smallest - shift) * unit), (c.largest - shift) * unit);
    if (exact) expected = round_to(expected, c.dtype);
    const bool same = real == expected || (isnan(real) && isnan(expected));
    const bool ordinary = isfinite(real) && isfinite(expected);
    const bool near = fabs(expected) + bound >= c.threshold && isinf(real) && signbit(real) == signbit(expected);
    const bool forced = ordinary && fabs(expected) - bound >= c.threshold;
    bool free = c.integer && isnan(value);
    if (c.activation == 1) free |= isnan(linear);
    if (c.activation > 1) free |= !isfinite(linear);
    Verdict v;
    v.error = same || near || free || !ordinary ? 0.0 : fabs(real - expected);
    v.bound = bound, v.found = real, v.expected = expected;
    const bool bad = (!(same || ordinary || near) || forced) && !free;
    v.excess = bad ? __longlong_as_double(0x7FF0000000000000ll) : v.error > 0 ? v.error / bound : 0.0;
    if (bad) v.error = 1.7976931348623157e308;
    v.finite = isfinite(value) && !bad;
    return v;
}

__device__ bool worse(const Partial& a, const Partial& b) {
    if (a.index < 0 || b.index < 0) return b.index < 0 && a.index >= 0;
    return a.excess > b.excess || (a.excess == b.excess && a.index < b.index);
}

extern "C" __global__ void __launch_bounds__(256) compare(Comparison c) {
    Partial mine = {};
    mine.index = -1, mine.excess = -1;
    const i64 total = c.items * c.rows * c.n, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        const i64 line = i / c.n, col = i - line * c.n, item = line / c.rows, row = line - item * c.rows;
        const i64 at = (c.first_item + item) * c.item_stride + (c.first_row + row) * c.row_stride + col * c.col_stride;
        const double value = ((const double*)c.value)[i], linear = c.linear ? ((const double*)c.linear)[i] : 0.0;
        const double step = c.scale ? ((const float*)c.scale)[(c.first_row + row) * c.scale_stride] : 0.0;
        const Verdict v = judge(c, load_element(c.d, at, c.dtype), step, value, ((const double*)c.magnitude)[i], linear);
        mine.wrong += v.excess > 1;
        mine.unwritten += isnan(v.found) && !isnan(v.expected);
        if (v.finite) mine.finite += 1, mine.error_squares += v.error * v.error, mine.value_squares += value * value;
        if (mine.index < 0 || v.excess > mine.excess) {
            mine.excess = v.excess, mine.index = i;
            mine.error = v.error, mine.bound = v.bound, mine.found = v.found, mine.expected = v.expected;
        }
    }
    __shared__ Partial all[256];
    all[threadIdx.x] = mine;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        const Partial other = all[threadIdx.x + half];
        Partial& own = all[threadIdx.x];
        const i64 wrong = own.wrong + other.wrong, unwritten = own.unwritten + other.unwritten;
        const i64 finite = own.finite + other.finite;
        const double error_squares = own.error_squares + other.error_squares;
        const double value_squares = own.value_squares + other.value_squares;
        if (worse(other, own)) own = other;
        own.wrong = wrong, own.unwritten = unwritten, own.finite = finite;
        own.error_squares = error_squares, own.value_squares = value_squares;
    }
    if (threadIdx.x == 0) ((Partial*)c.partials)[blockIdx.x] = all[0];
}
