# Sources of backend/cpu and the instruction sets each may use. A file with a suffix is only entered
# after cpu_features.c has seen that the CPU has what it was compiled for.
set(LP_CPU_SOURCES backend/kernels.c)
foreach(stem cpu_device cpu_features cpu_selfcheck cpu_mat_scratch cpu_matmul cpu_head_matmul cpu_experts
             cpu_quantize_act_avx2 cpu_matmul_plain cpu_matmul_avx2 cpu_matmul_avx2_f8 cpu_matmul_avx2_q32
             cpu_matmul_avx2_k cpu_matmul_avx2_iq cpu_matmul_vnni
             cpu_attn cpu_attn_mla cpu_attn_mla_expanded cpu_attn_gqa cpu_indexer
             cpu_elementwise cpu_router cpu_lanes_plain cpu_lanes_avx2 cpu_lanes_avx512)
  if(EXISTS ${PROJECT_SOURCE_DIR}/src/backend/cpu/${stem}.c)
    list(APPEND LP_CPU_SOURCES backend/cpu/${stem}.c)
  endif()
endforeach()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  foreach(source IN LISTS LP_CPU_SOURCES)
    if(source MATCHES "_avx2[_a-z0-9]*\\.c$")
      set_source_files_properties(${PROJECT_SOURCE_DIR}/src/${source} PROPERTIES
                                  COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.c$")
      set_source_files_properties(${PROJECT_SOURCE_DIR}/src/${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq")
    elseif(source MATCHES "_vnni\\.c$")
      set_source_files_properties(${PROJECT_SOURCE_DIR}/src/${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni")
    endif()
  endforeach()
endif()

# A figure, not a test: built when asked for by name.
add_executable(bench_matmul EXCLUDE_FROM_ALL bench/kernels/bench_matmul.c)
target_link_libraries(bench_matmul PRIVATE lp_backend)
