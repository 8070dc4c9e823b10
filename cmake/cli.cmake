lp_folder(cli
  SOURCES cli/args.c cli/ids.c cli/npy.c cli/peak_memory.c cli/limits.c cli/bench_report.c
          cli/inspect_report.c cli/inspect_print.c cli/cmd_run.c cli/cmd_serve.c cli/cmd_dump.c
          cli/cmd_tokenize.c cli/cmd_inspect.c cli/cmd_bench.c
  LINK lp_serve lp_engine lp_model lp_base)
add_executable(limpid src/cli/main.c)
target_link_libraries(limpid PRIVATE lp_cli)
