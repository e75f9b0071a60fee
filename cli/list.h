// SPDX-License-Identifier: MIT
// Every subcommand in the order of moe --help, one per line: the file defines
// moe_cli::add_NAME(CLI::App&), which adds the command's options and its callback. C++ includes
// this with MOE_COMMAND defined, CMake reads the lines; a build without the converter leaves out
// what lies in cli/convert, one without libmicrohttpd cli/serve.

MOE_COMMAND(generate, "cli/text/generate.cpp")
MOE_COMMAND(chat, "cli/chat/chat.cpp")
MOE_COMMAND(batch, "cli/batch/batch.cpp")
MOE_COMMAND(serve, "cli/serve/serve.cpp")
MOE_COMMAND(verify, "cli/serve/verify.cpp")
MOE_COMMAND(convert, "cli/convert/convert.cpp")
MOE_COMMAND(inspect, "cli/model/inspect.cpp")
MOE_COMMAND(perplexity, "cli/text/perplexity.cpp")
MOE_COMMAND(compare, "cli/compare/compare.cpp")
MOE_COMMAND(tokenize, "cli/text/tokenize.cpp")
MOE_COMMAND(eval, "cli/text/eval.cpp")
MOE_COMMAND(score, "cli/text/score.cpp")
MOE_COMMAND(fill, "cli/text/fill.cpp")
MOE_COMMAND(embed, "cli/text/embed.cpp")
MOE_COMMAND(rerank, "cli/text/rerank.cpp")
MOE_COMMAND(translate, "cli/text/translate.cpp")
MOE_COMMAND(bench, "cli/bench/bench.cpp")
MOE_COMMAND(trace, "cli/trace/trace.cpp")
MOE_COMMAND(cache, "cli/convert/cache.cpp")
MOE_COMMAND(completion, "cli/help/completion.cpp")
MOE_COMMAND(manual, "cli/help/manual.cpp")
