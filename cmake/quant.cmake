set(LP_QUANT_SEARCH quant/quantize_search.c quant/quantize_search_plain.c)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(APPEND LP_QUANT_SEARCH quant/quantize_search_avx2.c)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/quant/quantize_search_avx2.c PROPERTIES
                              COMPILE_OPTIONS "-mavx2")
endif()
lp_folder(quant
  SOURCES quant/types.c quant/widen.c quant/half.c quant/dequant.c quant/dequant_iq.c quant/quantize.c
          quant/quantize_rows.c ${LP_QUANT_SEARCH} quant/dot_ref.c quant/codebooks.c quant/random_blocks.c
  LINK lp_base)
