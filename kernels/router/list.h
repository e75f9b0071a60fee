// SPDX-License-Identifier: MIT
// Every router, one per line: its name in code, and the file with NameRouter
// (kernels/router/info.h). Included wherever something is generated for each, hence no include
// guard; CMake generates kernels/router/all.h, which includes the files, from it.
MOE_ROUTER(Softmax, "kernels/router/softmax.h")
MOE_ROUTER(Threshold, "kernels/router/threshold.h")
MOE_ROUTER(Cosine, "kernels/router/cosine.h")
MOE_ROUTER(Sigmoid, "kernels/router/sigmoid.h")
MOE_ROUTER(Sparsemixer, "kernels/router/sparsemixer.h")
MOE_ROUTER(Hash, "kernels/router/hash.h")
MOE_ROUTER(Base, "kernels/router/base.h")
