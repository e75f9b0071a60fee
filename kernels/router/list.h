// Every router, one line each: its name in the code, and the file that holds NameRouter
// (kernels/router/info.h). Read wherever something is made for each of them, so without a guard;
// CMake makes kernels/router/all.h, which includes the files, from it.
MOE_ROUTER(Softmax, "kernels/router/softmax.h")
MOE_ROUTER(Threshold, "kernels/router/threshold.h")
MOE_ROUTER(Cosine, "kernels/router/cosine.h")
MOE_ROUTER(Sigmoid, "kernels/router/sigmoid.h")
MOE_ROUTER(Sparsemixer, "kernels/router/sparsemixer.h")
MOE_ROUTER(Hash, "kernels/router/hash.h")
MOE_ROUTER(Base, "kernels/router/base.h")
