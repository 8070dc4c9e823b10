// The laboratory of the attention kernels on an NVIDIA GPU: for each shape its versions, checked against
// the formula in double on rows picked at random, and timed by events (median; data from memory, not
// from L2) beside the copy bandwidth and the bfloat16 matrix rate of the same run.
//
// Usage: bench_cuda_attention [FILE.csv [WORD [KERNEL]]]   (only cases whose name holds WORD; only
// this kernel; "index": those of the indexer)
#include "cuda_lab_index.cuh"
#include "cuda_lab_latent.cuh"
#include "cuda_lab_prefill.cuh"

int main(int argc, char **argv) {
    struct cudaDeviceProp prop;
    int n_devices = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no NVIDIA GPU\n");
        return 77;
    }
    CHECK(cudaGetDeviceProperties(&prop, 0));
    CHECK(cudaStreamCreate(&stream));
    if (argc > 1 && !(csv = fopen(argv[1], "w"))) {
        printf("%s cannot be written\n", argv[1]);
        return 1;
    }
    if (argc > 2) only = argv[2];
    if (argc > 3) only_kernel = argv[3];
    if (csv) setvbuf(csv, NULL, _IOLBF, 0); // what was measured stays, whatever happens
    if (csv) fprintf(csv, "case,kernel,setting,us,tb_s,tflop_s,of_copy,of_matrix,error,bound\n");
    printf("%s, %d multiprocessors\n", prop.name, prop.multiProcessorCount);
    n_multiprocessors = prop.multiProcessorCount;
    measure_limits(prop.multiProcessorCount);
    const bool index_alone = only_kernel && strcmp(only_kernel, "index") == 0;
    if (!index_alone) latent_cases();
    if (!index_alone) prefill_cases();
    if (index_alone || !only_kernel) index_cases();
    if (csv) fclose(csv);
    return failed;
}
