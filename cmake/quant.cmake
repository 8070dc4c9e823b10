lp_folder(quant
  SOURCES quant/types.c quant/half.c quant/dequant.c quant/dequant_iq.c quant/quantize.c
          quant/quantize_search.c quant/dot_ref.c quant/codebooks.c
  LINK lp_base)
