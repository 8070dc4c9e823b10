# Sources of backend/cpu and the instruction sets each may use. A file with a suffix is only entered
# after cpu_features.c has seen that the CPU has what it was compiled for.
set(LP_CPU_STEMS cpu_device cpu_features cpu_selfcheck cpu_mat_scratch cpu_matmul cpu_pack cpu_head_matmul cpu_experts
                 cpu_wide cpu_wide_experts
                 cpu_matmul_plain cpu_grid_codes cpu_attn cpu_attn_mla cpu_attn_mla_expanded cpu_attn_gqa cpu_indexer
                 cpu_index_choose cpu_sieve cpu_latent
                 cpu_elementwise cpu_router cpu_lanes_plain)
set(LP_CPU_AVX512 "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(APPEND LP_CPU_STEMS cpu_quantize_act_avx2 cpu_matmul_avx2 cpu_matmul_avx2_f8 cpu_matmul_avx2_q32
                           cpu_matmul_avx2_k cpu_matmul_avx2_iq cpu_matmul_avx512 cpu_matmul_vnni cpu_matmul_vbmi cpu_matmul_amx cpu_lanes_avx2
                           cpu_lanes_avx512 cpu_sieve_avx2 cpu_sieve_vnni cpu_sieve_amx cpu_latent_avx2
                           cpu_latent_avx512 cpu_latent_vnni cpu_latent_bf16 cpu_latent_amx cpu_fixed16_vnni cpu_fixed16_amx
                           cpu_wide_amx)
  # suffix: options
  set(LP_CPU_OPTIONS "_avx2[_a-z0-9]*: -mavx2 -mfma -mf16c" "_avx512: ${LP_CPU_AVX512}"
                     "_vnni: ${LP_CPU_AVX512} -mavx512vnni"
                     "_vbmi: ${LP_CPU_AVX512} -mavx512vnni -mavx512vbmi"
                     "_bf16: ${LP_CPU_AVX512} -mavx512vnni -mavx512vbmi -mavx512bf16"
                     "_amx: ${LP_CPU_AVX512} -mavx512vnni -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND LP_CPU_STEMS cpu_quantize_act_neon cpu_matmul_neon cpu_matmul_neon_q8 cpu_matmul_dotprod
                           cpu_matmul_i8mm cpu_lanes_neon)
  set(LP_CPU_OPTIONS "_dotprod: -march=armv8.2-a+dotprod" "_i8mm: -march=armv8.2-a+dotprod+i8mm")
endif()

# All is inlined in the matrix kernels: with every check of the sanitizers they take minutes to compile.
# Addresses are still checked, but for values that outlive their block; where kernels are very large each
# check is a call, which runs several times as slow. What is left out would be seen there as well.
if(LIMPID_SANITIZE MATCHES address AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(LP_SANITIZED_KERNEL -g1 -fno-sanitize=null,pointer-overflow,object-size -fno-sanitize-address-use-after-scope)
  set(LP_SANITIZED_BY_CALLS "_vnni$|_vbmi$|_amx$")
endif()

set(LP_CPU_SOURCES backend/kernels.c)
foreach(stem IN LISTS LP_CPU_STEMS)
  set(source backend/cpu/${stem}.c)
  list(APPEND LP_CPU_SOURCES ${source})
  foreach(row IN LISTS LP_CPU_OPTIONS)
    string(REGEX MATCH "^(.*): (.*)$" row "${row}")
    set(options ${CMAKE_MATCH_2})
    if(stem MATCHES "${CMAKE_MATCH_1}$")
      separate_arguments(options)
      if(stem MATCHES matmul)
        list(APPEND options ${LP_SANITIZED_KERNEL})
        if(LP_SANITIZED_KERNEL AND stem MATCHES "${LP_SANITIZED_BY_CALLS}")
          list(APPEND options --param=asan-instrumentation-with-call-threshold=0)
        endif()
      endif()
      if(LIMPID_SANITIZE AND stem MATCHES "_amx$") # few machines run them, and they take long to compile
        list(APPEND options -O1 -fno-sanitize-address-use-after-scope)
      endif()
      set_source_files_properties(${PROJECT_SOURCE_DIR}/src/${source} PROPERTIES COMPILE_OPTIONS "${options}")
    endif()
  endforeach()
endforeach()

# A figure, not a test: built when asked for by name.
add_executable(bench_matmul EXCLUDE_FROM_ALL bench/kernels/bench_matmul.c)
target_link_libraries(bench_matmul PRIVATE lp_backend)
