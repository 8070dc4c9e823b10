lp_folder(doctor
  SOURCES doctor/report.c doctor/report_view.c doctor/report_json.c doctor/report_html.c
          doctor/report_svg.c doctor/lab.c doctor/exam.c
          doctor/diff.c doctor/shadow.c doctor/shadow_matmul.c doctor/shadow_attention.c doctor/shadow_choice.c
          doctor/walk.c doctor/thin.c doctor/layer_numbers.c doctor/check_kernels.c doctor/check_layers.c doctor/formula.c doctor/check_routes.c
          doctor/check_cache.c doctor/cache_prefix.c doctor/cache_requests.c
          doctor/ranks_run.c doctor/ranks_attend.c doctor/check_ranks.c
          doctor/accuse.c doctor/check_file.c doctor/check_sizes.c
          doctor/check_keys.c doctor/check_binding.c doctor/check_metadata.c doctor/check_published.c
          doctor/vocab_family.c doctor/check_tokens.c doctor/check_pretok.c
          doctor/check_token_types.c doctor/check_template.c
          doctor/weight_read.c doctor/weight_stats.c doctor/weight_twins.c doctor/weight_links.c
          doctor/weight_sizes.c doctor/weight_shape.c doctor/weight_pairs.c
          doctor/check_weights.c
          doctor/dump_read.c doctor/against_claims.c doctor/against_run.c doctor/against_judge.c
          doctor/check_against.c
          doctor/texts.c doctor/tap.c doctor/reading.c doctor/health.c doctor/patch.c doctor/locate.c
          doctor/remedies.c doctor/remedy_settings.c doctor/remedy_router.c doctor/remedy_tensors.c
          doctor/remedy_suspects.c doctor/remedy_tokens.c doctor/output_figures.c doctor/output_verdict.c
          doctor/check_output.c doctor/recall.c doctor/sparse_remedies.c doctor/check_sparse.c
  LINK lp_engine lp_hf lp_model lp_text lp_base PkgConfig::JANSSON)
# The page's style sheet lies in the program as it is (report_html.c).
set_source_files_properties(src/doctor/report_html.c PROPERTIES
  COMPILE_DEFINITIONS LP_REPORT_CSS_PATH="${CMAKE_CURRENT_SOURCE_DIR}/src/doctor/report.css"
  OBJECT_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/doctor/report.css)
