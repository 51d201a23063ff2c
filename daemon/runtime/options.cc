#include "daemon/runtime/options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

namespace ponder::daemon {

ParsedOptions parse_options(int argc, char** argv, const std::string& version_line) {
  Options options;
  CLI::App app{"ponderd: a local language model behind a durable queue."};
  app.option_defaults()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);  // as other programs
  app.set_version_flag("--version", version_line);
  app.add_option("--home", options.home, "Keep everything in this directory")->type_name("DIR");
  app.add_option("--config", options.config_file, "Read this instead of ponder.toml")
      ->type_name("FILE");
  app.add_flag("--detach", options.detach, "Run in the background; return once the socket serves");
  app.add_flag("--print-config", options.print_config,
               "Print the settings and where each came from");
  app.add_flag("--check-config", options.check_config, "Check the settings, then exit");
  app.add_flag("--check-database", options.check_database,
               "Read the whole database while no daemon runs, print what was found as JSON, change "
               "nothing; exit 74 if it is damaged, 75 if a daemon runs");

  std::string port, model, ctx, engine;
  std::vector<std::string> listen;
  app.add_option("--port", port, "TCP port on 127.0.0.1; 0: no TCP")->type_name("N");
  app.add_option("--model", model, "The GGUF file to serve")->type_name("FILE");
  app.add_option("--ctx", ctx, "Window in tokens")->type_name("N");
  app.add_option("--engine", engine, "cpu, or stub for the scripted one")->type_name("cpu|stub");
  app.add_option("--listen", listen, "Listen here, too (repeatable)")
      ->type_name("ADDR:PORT")
      ->expected(1);
  app.get_option("--listen")->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    app.exit(e, std::cout, std::cerr);
    return {{}, 0};
  } catch (const CLI::ParseError& e) {
    app.exit(e, std::cout, std::cerr);
    return {{}, 2};
  }
  const auto keep = [&](const char* name, const std::string& text) {
    if (app.count(std::string("--") + name) > 0) options.flags[name] = {text};
  };
  keep("port", port);
  keep("model", model);
  keep("ctx", ctx);
  keep("engine", engine);
  if (!listen.empty()) options.flags["listen"] = listen;
  return {std::move(options), {}};
}

}  // namespace ponder::daemon
