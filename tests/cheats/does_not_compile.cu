// Not C++.
extern "C" __global__ void does_not_compile(float* d) { d[0] = undeclared_name; }
