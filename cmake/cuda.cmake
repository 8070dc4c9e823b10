# The compiler for backend/cuda. One build serves several generations of GPUs; a quick build for one:
# -DCMAKE_CUDA_ARCHITECTURES=90a.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90a-real 100-real 120)
endif()
if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -g")
# Strict arithmetic on the device too: no contraction that the source did not ask for; division, square
# root and subnormals as IEEE has them (nvcc's defaults).
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=-fno-exceptions,-fno-rtti,-fno-strict-aliasing,-Wall>")

set(LP_CUDA_SOURCES backend/cuda/cuda_device.c backend/cuda/cuda_elementwise.cu backend/cuda/cuda_norm.cu backend/cuda/cuda_matmul.cu
                    backend/cuda/cuda_experts.cu backend/cuda/cuda_router.cu backend/cuda/cuda_attention.cu
                    backend/cuda/cuda_indexer.cu backend/cuda/cuda_attn_kernels.c backend/cuda/cuda_latent.c
                    backend/cuda/cuda_replay.c backend/cuda/cuda_expand.cu backend/cuda/cuda_rates.cu backend/cuda/cuda_float.cu
                    backend/cuda/cuda_mla_decode.cu backend/cuda/cuda_mla_decode_sm90.cu
                    backend/cuda/cuda_indexer_mma.cu backend/cuda/cuda_mla_prefill.cu
                    backend/cuda/cuda_mla_prefill_sm90.cu backend/cuda/cuda_widen.cu backend/cuda/cuda_kernels.c backend/cuda/cuda_quantize_act.cu
                    backend/cuda/cuda_halve_act.cu backend/cuda/cuda_top.cu backend/cuda/cuda_wide_f16.cu backend/cuda/cuda_wide_bf16.cu)
foreach(type q4_k q5_k q6_k q8_0 q2_k q3_k q4_0 q4_1 q5_0 q5_1 iq4_nl iq4_xs mxfp4 nvfp4 iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s
             iq1_s iq1_m) # LP_CUDA_Q8_TYPES
  list(APPEND LP_CUDA_SOURCES backend/cuda/cuda_q8_${type}.cu backend/cuda/cuda_wide_${type}.cu)
endforeach()
# Sums over several GPUs need NCCL's header here, and its library where they run (it is loaded then).
if(NOT LIMPID_NCCL STREQUAL OFF)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_HOME PATH_SUFFIXES include)
  if(NCCL_INCLUDE_DIR)
    list(APPEND LP_CUDA_SOURCES backend/cuda/cuda_group.c)
  elseif(NOT LIMPID_NCCL STREQUAL AUTO)
    message(FATAL_ERROR "LIMPID_NCCL is ${LIMPID_NCCL}, and nccl.h is not there: install libnccl-dev, or set NCCL_INCLUDE_DIR")
  endif()
endif()
string(REGEX REPLACE "-(real|virtual)" "" architectures "${CMAKE_CUDA_ARCHITECTURES}")
list(JOIN architectures ", " architectures)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/cuda/cuda_device.c PROPERTIES
                            COMPILE_DEFINITIONS "LP_CUDA_ARCHITECTURES=\"${architectures}\"")
if("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "90a") # the only code in which wgmma exists
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/cuda/cuda_attn_kernels.c
                              ${PROJECT_SOURCE_DIR}/src/backend/cuda/cuda_kernels.c PROPERTIES
                              COMPILE_DEFINITIONS LP_CUDA_BUILT_WGMMA)
endif()

# What needs the backend's library: after the folders of sources (CMakeLists.txt).
function(lp_cuda_benches)
  add_executable(bench_cuda_attention EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/kernels/bench_cuda_attention.cu)
  target_link_libraries(bench_cuda_attention PRIVATE lp_backend)
  add_executable(bench_cuda_matmul EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/kernels/bench_cuda_matmul.cu)
  target_link_libraries(bench_cuda_matmul PRIVATE lp_backend CUDA::cudart_static)
  if(TARGET CUDA::cublasLt)
    target_compile_definitions(bench_cuda_matmul PRIVATE LP_BENCH_CUBLASLT)
    target_link_libraries(bench_cuda_matmul PRIVATE CUDA::cublasLt)
  endif()
endfunction()
