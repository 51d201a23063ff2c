// ponder completion: a script for the shell that completes commands and the ids of jobs.
#include <fmt/core.h>

#include "clients/cli/commands.h"

namespace ponder::cli {
namespace {
// Commands whose words are ids. The others complete file names.
constexpr std::string_view kWithIds = "show|logs|wait|result|cancel|rm|pin|unpin|continue|status";
// The first column of the table, without its head.
constexpr std::string_view kIds =
    "ponder ps --all --no-start 2>/dev/null | awk 'NR > 1 {print $1}'";

std::string names() {
  std::string out;
  for (const Command& command : all_commands())
    out += fmt::format("{}{}", out.empty() ? "" : " ", command.name);
  return out;
}

std::string for_bash() {
  return fmt::format(
      "_ponder() {{\n"
      "  local word=\"${{COMP_WORDS[COMP_CWORD]}}\"\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n"
      "    {}) COMPREPLY=($(compgen -W \"@last $({})\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _ponder ponder\n",
      names(), kWithIds, kIds);
}

std::string for_zsh() {
  std::string commands;
  for (const Command& command : all_commands()) {
    std::string summary(command.summary);
    for (std::size_t at = 0; (at = summary.find('\'', at)) != summary.npos; at += 4)
      summary.replace(at, 1, "'\\''");
    commands += fmt::format("    '{}:{}'\n", command.name, summary);
  }
  return fmt::format(
      "#compdef ponder\n"
      "_ponder() {{\n"
      "  local -a commands\n"
      "  commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  case ${{words[2]}} in\n"
      "    {}) compadd -- @last $({}) ;;\n"
      "    *) _files ;;\n"
      "  esac\n"
      "}}\n"
      "compdef _ponder ponder\n",
      commands, kWithIds, kIds);
}

std::string for_fish() {
  std::string out;
  for (const Command& command : all_commands()) {
    std::string summary(command.summary);
    for (std::size_t at = 0; (at = summary.find('\'', at)) != summary.npos; at += 2)
      summary.insert(at, "\\");
    out += fmt::format("complete -c ponder -f -n __fish_use_subcommand -a {} -d '{}'\n",
                       command.name, summary);
  }
  std::string with_ids(kWithIds);
  for (char& c : with_ids)
    if (c == '|') c = ' ';
  return out +
         fmt::format(
             "complete -c ponder -f -n '__fish_seen_subcommand_from {}' -a \"(ponder ps --all "
             "--no-start 2>/dev/null | awk 'NR > 1 {{print \\$1}}')\"\n",
             with_ids);
}

int completion(Context& context, const std::string& shell) {
  if (shell == "bash")
    context.out(for_bash());
  else if (shell == "zsh")
    context.out(for_zsh());
  else if (shell == "fish")
    context.out(for_fish());
  else
    return context.usage("the shell must be bash, zsh or fish");
  return kDone;
}
}  // namespace

Action declare_completion(Arguments& arguments) {
  auto shell = std::make_shared<std::vector<std::string>>();
  arguments.words("SHELL", *shell, 1, 1, "bash, zsh or fish");
  return [shell](Context& context) { return completion(context, shell->front()); };
}

}  // namespace ponder::cli
