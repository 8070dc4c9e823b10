lp_folder(attention
  SOURCES attention/route.c attention/attn_ops.c attention/gqa.c attention/mla.c attention/mla_expanded.c
          attention/mla_absorbed.c attention/sparse.c attention/attn_probe.c attention/probe_keys.c
          attention/probe_scores.c attention/mla_probe.c attention/gqa_probe.c
  LINK lp_kv lp_backend lp_trace lp_base)
