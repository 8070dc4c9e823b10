pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
lp_folder(cli
  SOURCES cli/args.c cli/json_build.c cli/ids.c cli/npy.c cli/peak_memory.c cli/limits.c cli/bench_report.c cli/bench_run.c cli/bench_svg.c
          cli/inspect_report.c cli/inspect_tensors.c cli/inspect_memory.c cli/inspect_ranks.c cli/inspect_print.c
          cli/cmd_run.c cli/cmd_serve.c cli/cmd_dump.c cli/cmd_tokenize.c cli/cmd_inspect.c cli/cmd_bench.c
          cli/cmd_trace.c cli/trace_files.c cli/cmd_probe.c cli/probe_dir.c
          cli/find_model.c cli/model_folder.c cli/near_name.c cli/remote_name.c cli/shell_quote.c
          cli/sample_options.c cli/generator.c cli/reply_view.c cli/interrupt.c
          cli/dialogue.c cli/dialogue_file.c cli/line_editor.c cli/history_file.c
          cli/repl.c cli/repl_commands.c
          cli/cmd_doctor.c cli/doctor_print.c cli/output_file.c
          cli/cmd_synth.c cli/cmd_diff.c cli/diff_print.c cli/cmd_convert.c
          cli/cmd_quantize.c cli/cmd_imatrix.c
          cli/cmd_merge.c cli/cmd_split.c cli/byte_size.c cli/copy_report.c
          cli/next_command.c cli/size_text.c cli/wrote.c cli/wrap.c
          cli/memory_budget.c cli/memory_check.c cli/program_ranks.c cli/ranks_watch.c
  LINK lp_doctor lp_files lp_serve lp_engine lp_model lp_base PkgConfig::LIBEDIT)

# Where the built-in model is: beside an installed limpid, or in the source of one that is not.
include(GNUInstallDirs)
if(IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_BINDIR}")
  set(data_from_bin "${CMAKE_INSTALL_FULL_DATADIR}/limpid")
else()
  file(RELATIVE_PATH data_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_DATADIR}/limpid")
endif()
target_compile_definitions(lp_cli PRIVATE LP_DATA_FROM_BIN="${data_from_bin}"
                                          LP_SOURCE_MODELS="${CMAKE_CURRENT_SOURCE_DIR}/models")
add_executable(limpid src/cli/main.c)
target_link_libraries(limpid PRIVATE lp_cli)
