include(cmake/backend_cpu.cmake OPTIONAL)
lp_folder(backend
  SOURCES backend/backend.c backend/cache_row.c backend/probe.c
          backend/ref/ref_device.c backend/ref/ref_norm_rope.c backend/ref/ref_rows.c backend/ref/ref_matmul.c
          backend/ref/ref_attention.c backend/ref/ref_indexer.c backend/ref/ref_router.c
          backend/ref/ref_experts.c
          ${LP_CPU_SOURCES} ${LP_CUDA_SOURCES}
  LINK lp_quant lp_base lp_trace)
if(LP_CPU_SOURCES)
  target_compile_definitions(lp_backend PRIVATE LP_HAVE_CPU_BACKEND)
endif()
if(LIMPID_CUDA)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/backend.c PROPERTIES
                              COMPILE_DEFINITIONS LIMPID_CUDA)
  target_link_libraries(lp_backend PUBLIC CUDA::cudart_static)
  if(NCCL_INCLUDE_DIR)
    target_compile_definitions(lp_backend PRIVATE LP_CUDA_NCCL)
    target_include_directories(lp_backend SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
    target_link_libraries(lp_backend PUBLIC ${CMAKE_DL_LIBS})
  endif()
endif()
