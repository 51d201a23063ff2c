// ponder pull: downloads a GGUF file into models/ with the system's curl, which knows about TLS,
// proxies and certificates. The file gets its name only when it is whole and right; a download that
// was cut goes on where it stopped, if the server's file is still the same one.
#include <fcntl.h>
#include <fmt/core.h>
#include <openssl/evp.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/model_source.h"
#include "clients/cli/run_program.h"
#include "engine/base/unique_fd.h"

extern char** environ;

namespace ponder::cli {
namespace {
namespace fs = std::filesystem;
constexpr std::size_t kSaidMax = 1 << 20;
constexpr int kTickMs = 500;
constexpr std::int64_t kSpareBytes = 64 << 20;  // what else lies on that disk goes on working

struct Options {
  std::vector<std::string> words;
  std::string name;
  std::string sha256;
};

struct CurlEnd {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Runs curl on options that come over its stdin, so that no address or token stands in the list of
/// processes. `tick` is called twice a second. Ctrl-C ends it.
Result<CurlEnd> run_curl(Context& context, const std::string& config,
                         const std::function<void()>& tick) {
  int in[2], out[2], err[2];
  if (::pipe(in) != 0 || ::pipe(out) != 0 || ::pipe(err) != 0)
    return fail(ErrorCode::internal, "no pipe could be made");
  UniqueFd to(in[1]), child_in(in[0]), from(out[0]), child_out(out[1]), talk(err[0]),
      child_err(err[1]);
  for (const int fd : {in[0], in[1], out[0], out[1], err[0], err[1]})
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err[1], 2);
  std::array<std::string, 4> words{"curl", "--disable", "--config",
                                   "-"};  // --disable: no ~/.curlrc
  std::array<char*, 5> argv{};
  for (std::size_t i = 0; i < words.size(); ++i)
    argv[i] = words[i].data();
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, "curl", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail(ErrorCode::internal, fmt::format("curl cannot be run: {}", std::strerror(error)),
                "install it (apt install curl), or put a GGUF file into models/ by hand");
  child_in.reset();
  child_out.reset();
  child_err.reset();
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  write_fully(to.get(), config);
  ::signal(SIGPIPE, before);
  to.reset();

  CurlEnd end;
  bool open_out = true, open_err = true;
  while (open_out || open_err) {
    std::array<pollfd, 3> fds{{{open_out ? from.get() : -1, POLLIN, 0},
                               {open_err ? talk.get() : -1, POLLIN, 0},
                               {context.interrupt().wait_fd(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), kTickMs);
    if (context.interrupt().triggered()) break;
    const auto read_into = [](int fd, std::string& text) {
      std::array<char, 4096> buffer;
      const ssize_t n = ::read(fd, buffer.data(), buffer.size());
      if (n > 0 && text.size() < kSaidMax) text.append(buffer.data(), static_cast<std::size_t>(n));
      return n > 0 || (n < 0 && errno == EINTR);
    };
    if (fds[0].revents != 0) open_out = read_into(from.get(), end.out);
    if (fds[1].revents != 0) open_err = read_into(talk.get(), end.err);
    tick();
  }
  const bool interrupted = context.interrupt().triggered();
  if (interrupted) ::kill(pid, SIGTERM);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (interrupted)
    return fail(ErrorCode::cancelled, "interrupted; the same command goes on where it stopped");
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  return end;
}

std::string config_for(const ModelFile& file, bool from_hub) {
  // A transfer that stands still for a minute is over: the next try goes on from there.
  std::string config = fmt::format(
      "url = \"{}\"\nproto = \"={}\"\nproto-redir = \"=https{}\"\nlocation\nmax-redirs = "
      "8\nsilent\n"
      "show-error\nfail\ngloboff\nconnect-timeout = 20\nspeed-limit = 1000\nspeed-time = 60\n"
      "user-agent = \"ponder/" PONDER_VERSION "\"\n",
      file.url, file.url.starts_with("https") ? "https" : "http",
      file.url.starts_with("https") ? "" : ",http");
  const std::string token = environment("HF_TOKEN");
  const bool plain = token.find_first_of("\"\\\r\n") == std::string::npos;
  if (from_hub && !token.empty() && plain)
    config += fmt::format("header = \"Authorization: Bearer {}\"\n", token);
  return config;
}

/// What curl's end means, with the exit code for it.
struct Trouble {
  Error error;
  int exit_code = kFailed;
};

Trouble trouble_of(const CurlEnd& end, int status, const ModelFile& file, const fs::path& models) {
  std::string said = end.err.substr(0, 300);
  while (!said.empty() && said.back() <= ' ')
    said.pop_back();
  const std::string host = file.url.substr(0, file.url.find('/', file.url.find("//") + 2));
  switch (end.exit_code) {
    case 22:
      if (status == 404 || status == 410)
        return {{ErrorCode::not_found, fmt::format("there is no {} ({})", file.url, status)}};
      if (status == 401 || status == 403)
        return {{ErrorCode::unauthorized, fmt::format("{} may not be read ({})", file.url, status),
                 "set HF_TOKEN to a token of a user who may read it"},
                kFailed};
      return {{ErrorCode::unreachable, fmt::format("{} refuses: {}", host, said)}, kTryLater};
    case 23:
      return {{ErrorCode::storage, "the file cannot be written: " + said,
               "make room; the same command goes on where it stopped"},
              kStorage};
    case 35:
    case 51:
    case 58:
    case 60:
    case 77:
    case 83:
    case 90:
    case 91:
      return {{ErrorCode::unreachable, fmt::format("{} cannot be trusted: {}", host, said),
               "look at the system's certificates and clock"}};
    case 1:
    case 3:
      return {{ErrorCode::bad_request, fmt::format("{} cannot be read: {}", file.url, said)},
              kUsage};
    default:
      return {{ErrorCode::unreachable,
               fmt::format("{} cannot be reached, or broke off: {}", host,
                           said.empty() ? fmt::format("curl ended with {}", end.exit_code) : said),
               fmt::format("with a network the same command goes on where it stopped; without one, "
                           "copy a GGUF file into {}",
                           models.string())},
              kTryLater};
  }
}

std::int64_t size_of(const fs::path& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 ? static_cast<std::int64_t>(s.st_size) : 0;
}

Result<std::string> sha256_of_file(Context& context, const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  if (!fd || !hash || EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) != 1)
    return fail(ErrorCode::storage, path.string() + " cannot be read back");
  std::string block(1 << 20, '\0');
  for (;;) {
    const ssize_t n = ::read(fd.get(), block.data(), block.size());
    if (context.interrupt().triggered()) return fail(ErrorCode::cancelled, "interrupted");
    if (n < 0) return fail(ErrorCode::storage, path.string() + " cannot be read back");
    if (n == 0) break;
    EVP_DigestUpdate(hash.get(), block.data(), static_cast<std::size_t>(n));
  }
  std::array<unsigned char, 32> digest{};
  EVP_DigestFinal_ex(hash.get(), digest.data(), nullptr);
  std::string hex;
  for (const unsigned char byte : digest)
    hex += fmt::format("{:02x}", byte);
  return hex;
}

Result<void> make_room(const fs::path& models, std::int64_t bytes) {
  struct statvfs s {};
  if (::statvfs(models.c_str(), &s) != 0) return {};
  const auto free = static_cast<std::int64_t>(s.f_bavail) * static_cast<std::int64_t>(s.f_frsize);
  if (free >= bytes + kSpareBytes) return {};
  return fail(ErrorCode::storage,
              fmt::format("{} more are needed and {} are free in {}",
                          bytes_in_words(static_cast<double>(bytes)),
                          bytes_in_words(static_cast<double>(free)), models.string()),
              "make room, or let models/ be a link to another disk");
}

fs::path aside_of(const fs::path& path) {
  return path.string() + ".damaged";
}

/// Takes the name away from what came, so that nobody takes it for a model; whoever wants to see
/// what it is still has it.
void set_aside(const fs::path& file, const fs::path& path) {
  ::rename(file.c_str(), aside_of(path).c_str());
}

/// Whether the engine can read the whole of `file`, which is `path` or becomes it. A server may
/// hold a file that was cut short before it got there: its size and hash are then as announced.
Result<void> check_file(Context& context, const fs::path& file, const fs::path& path) {
  const ProgramReport report = run_info(file);
  if (context.interrupt().triggered()) return fail(ErrorCode::cancelled, "interrupted");
  if (report.exit_code == 0) return {};
  if (report.exit_code < 0) {
    context.say("ponder: " + path.filename().string() +
                " was not checked: ponder-engine is not beside this program, or did not answer");
    return {};
  }
  std::string said = report.said;
  constexpr std::string_view kProgram = "ponder-engine: ";
  if (said.starts_with(kProgram)) said.erase(0, kProgram.size());
  if (said.starts_with(file.string())) said.replace(0, file.string().size(), path.string());
  while (!said.empty() && said.back() <= ' ')
    said.pop_back();
  const std::size_t line_end = said.find('\n');
  std::string hint =
      fmt::format("what came is kept as {}; try again, or another source", aside_of(path).string());
  if (line_end != std::string::npos) {
    const std::size_t begin = said.find_first_not_of(" \n", line_end);
    if (begin != std::string::npos) hint = said.substr(begin) + "\n  " + hint;
    said.resize(line_end);
  }
  return fail(ErrorCode::stream_lost, std::move(said), std::move(hint));
}

/// One file on its way into models/.
class Download {
 public:
  Download(Context& context, const fs::path& models, const ModelFile& file, bool from_hub)
      : context_(context), models_(models), file_(file), from_hub_(from_hub) {}

  /// {path, bytes, sha256, verified}. `wanted` is the SHA-256 that the caller gave, or empty.
  tl::expected<json::object, Trouble> run(const std::string& wanted) {
    if (auto asked = ask(); !asked) return tl::unexpected(asked.error());
    if (!wanted.empty() && !remote_.sha256.empty() && wanted != remote_.sha256)
      return trouble(
          ErrorCode::bad_request,
          fmt::format("the server's file has SHA-256 {}, not the one given", remote_.sha256));
    if (!wanted.empty()) remote_.sha256 = wanted;
    struct stat there {};
    if (::lstat(path().c_str(), &there) == 0) return keep();
    const UniqueFd lock(::open(part().c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock) return trouble(ErrorCode::storage, cannot_write(part()), kStorage);
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
      return trouble(ErrorCode::internal, part().string() + " is written by another ponder pull",
                     kTryLater);
    if (auto fetched = fetch(lock.get()); !fetched) return tl::unexpected(fetched.error());
    return finish(lock.get());
  }

 private:
  fs::path path() const { return models_ / file_.name; }
  fs::path part() const { return models_ / (file_.name + ".part"); }
  fs::path note() const { return models_ / (file_.name + ".part.from"); }

  static tl::unexpected<Trouble> trouble(ErrorCode code, std::string message,
                                         int exit_code = kFailed, std::string hint = {}) {
    return tl::unexpected(Trouble{{code, std::move(message), std::move(hint)}, exit_code});
  }
  static tl::unexpected<Trouble> as_trouble(const Error& error) {
    return tl::unexpected(Trouble{error, exit_code_of(error.code)});
  }
  static std::string cannot_write(const fs::path& path) {
    return fmt::format("{} cannot be written: {}", path.string(), std::strerror(errno));
  }

  /// Asks for the headers alone. A server that does not know such requests tells nothing.
  tl::expected<void, Trouble> ask() {
    const auto end = run_curl(context_, config_for(file_, from_hub_) + "head\n", [] {});
    if (!end) return as_trouble(end.error());
    remote_ = read_headers(end->out);
    if (end->exit_code == 0) return {};
    const bool unknown = remote_.status == 405 || remote_.status == 501;
    if (end->exit_code != 22 || !unknown)
      return tl::unexpected(trouble_of(*end, remote_.status, file_, models_));
    remote_ = {};
    return {};
  }

  /// There is a file of that name: the same one, or nothing is done.
  tl::expected<json::object, Trouble> keep() {
    std::string hash;
    if (!remote_.sha256.empty()) {
      auto made = sha256_of_file(context_, path());
      if (!made) return as_trouble(made.error());
      hash = std::move(*made);
    }
    const bool same = !remote_.sha256.empty() ? hash == remote_.sha256
                                              : remote_.bytes && size_of(path()) == *remote_.bytes;
    if (!same)
      return trouble(ErrorCode::bad_request,
                     path().string() + " is there already and is another file", kUsage,
                     "remove it, or give --name");
    if (!file_.is_part)
      if (auto checked = check_file(context_, path(), path()); !checked) {
        Error error = checked.error();
        if (error.code != ErrorCode::cancelled) error.hint = "remove it, and try another source";
        return tl::unexpected(
            Trouble{error, error.code == ErrorCode::cancelled ? kInterrupted : kFailed});
      }
    context_.say("ponder: " + file_.name + " is there already");
    return described(hash);
  }

  tl::expected<void, Trouble> fetch(int fd) {
    const std::string identity =
        fmt::format("{} {} {}\n", remote_.sha256, remote_.version, remote_.bytes.value_or(-1));
    const bool known = !remote_.sha256.empty() || !remote_.version.empty();
    std::ifstream in(note());
    const std::string before{std::istreambuf_iterator<char>(in), {}};
    if (!known || before != identity) {
      if (::ftruncate(fd, 0) != 0)
        return trouble(ErrorCode::storage, cannot_write(part()), kStorage);
      std::ofstream(note(), std::ios::trunc) << identity;
      ::chmod(note().c_str(), 0600);
    }
    const std::int64_t have = size_of(part());
    if (remote_.bytes && have == *remote_.bytes) return {};
    if (remote_.bytes)
      if (auto room = make_room(models_, *remote_.bytes - have); !room)
        return as_trouble(room.error());
    std::string config = config_for(file_, from_hub_);
    config += fmt::format("output = \"{}\"\n", escaped(part().string()));
    if (have > 0) config += fmt::format("continue-at = {}\n", have);
    const auto end = run_curl(context_, config, [this] { show(); });
    context_.terminal().counter("");
    if (!end) return as_trouble(end.error());
    if (end->exit_code == 0) return {};
    if (end->exit_code == 33 || (end->exit_code == 22 && have > 0))
      (void)!::ftruncate(fd, 0);  // it cannot go on from there: the next try begins anew
    return tl::unexpected(trouble_of(*end, 0, file_, models_));
  }

  static std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out;
  }

  void show() {
    const std::int64_t have = size_of(part());
    context_.terminal().counter(
        remote_.bytes && *remote_.bytes > 0
            ? fmt::format(
                  "{}: {} of {} ({} %)", file_.name, bytes_in_words(static_cast<double>(have)),
                  bytes_in_words(static_cast<double>(*remote_.bytes)), have * 100 / *remote_.bytes)
            : fmt::format("{}: {}", file_.name, bytes_in_words(static_cast<double>(have))));
  }

  /// Wrong bytes never get the file's name, nor are they gone on from.
  tl::expected<json::object, Trouble> wrong(const std::string& why) {
    ::unlink(part().c_str());
    ::unlink(note().c_str());
    return trouble(ErrorCode::stream_lost,
                   fmt::format("{}: {}; it was thrown away", file_.name, why), kFailed,
                   "try again, or another source");
  }

  tl::expected<json::object, Trouble> finish(int fd) {
    const std::int64_t bytes = size_of(part());
    if (remote_.bytes && bytes != *remote_.bytes)
      return wrong(fmt::format("{} bytes came, {} were announced", bytes, *remote_.bytes));
    std::array<char, 4> magic{};
    if (::pread(fd, magic.data(), magic.size(), 0) != 4 ||
        std::string_view(magic.data(), 4) != "GGUF")
      return wrong("this is no GGUF file");
    auto hash = sha256_of_file(context_, part());
    if (!hash) return as_trouble(hash.error());
    if (!remote_.sha256.empty() && *hash != remote_.sha256)
      return wrong(fmt::format("its SHA-256 is {}, not {}", *hash, remote_.sha256));
    if (::fsync(fd) != 0) return trouble(ErrorCode::storage, cannot_write(part()), kStorage);
    if (!file_.is_part)
      if (auto checked = check_file(context_, part(), path()); !checked) {
        if (checked.error().code == ErrorCode::cancelled) return as_trouble(checked.error());
        set_aside(part(), path());
        ::unlink(note().c_str());
        return tl::unexpected(Trouble{checked.error(), kFailed});
      }
    if (::rename(part().c_str(), path().c_str()) != 0)
      return trouble(ErrorCode::storage, cannot_write(path()), kStorage);
    ::unlink(note().c_str());
    ::unlink(aside_of(path()).c_str());  // of an earlier try, and worth nothing now
    const UniqueFd directory(::open(models_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory) ::fsync(directory.get());
    return described(*hash);
  }

  json::object described(const std::string& hash) const {
    const char* verified = !remote_.sha256.empty() ? "sha256" : remote_.bytes ? "size" : nullptr;
    return {{"path", path().string()},
            {"bytes", size_of(path())},
            {"sha256", hash.empty() ? json::value(nullptr) : json::value(hash)},
            {"verified", verified ? json::value(verified) : json::value(nullptr)}};
  }

  Context& context_;
  const fs::path models_;
  const ModelFile& file_;
  const bool from_hub_;
  RemoteFile remote_;
};

int pull(Context& context, const Options& options) {
  if (!environment("PONDER_URL").empty())
    return context.usage(
        "pull works on this machine's models/, but PONDER_URL names a daemon elsewhere",
        "run it there");
  std::string wanted = read_sha256(options.sha256);
  if (wanted.empty() && !options.sha256.empty())
    return context.usage("--sha256 must be 64 hexadecimal digits");
  std::string hub = environment("HF_ENDPOINT");
  if (hub.empty()) hub = "https://huggingface.co";
  const auto source = read_model_source(options.words.front(), options.name, hub);
  if (!source) return context.failed(source.error());
  if (!wanted.empty() && source->files.size() > 1)
    return context.usage("--sha256 is of one file, and this one is split");
  const auto places = context.places();
  if (!places) return context.failed(places.error());
  for (const fs::path& dir : {places->models_dir.parent_path(), places->models_dir}) {
    std::error_code ec;
    if (fs::is_symlink(dir, ec)) continue;  // models/ on another disk
    const bool needed =
        dir == places->models_dir || (fs::exists(dir, ec) && !fs::is_directory(dir, ec));
    if (const auto made = make_private_dir(dir); !made && needed)
      return context.failed(made.error());
  }
  json::array files;
  std::vector<fs::path> came;
  for (const ModelFile& file : source->files) {
    const fs::path path = places->models_dir / file.name;
    if (std::error_code ec; !fs::exists(path, ec)) came.push_back(path);
    auto done = Download(context, places->models_dir, file, source->from_hub).run(wanted);
    if (!done) return context.failed(done.error().error, done.error().exit_code);
    files.push_back(std::move(*done));
  }
  if (source->files.size() > 1) {  // what is split can be read only when all of it is there
    const fs::path first = places->models_dir / source->files.front().name;
    if (auto checked = check_file(context, first, first); !checked) {
      if (came.empty()) checked.error().hint = "remove its parts, and try another source";
      if (checked.error().code != ErrorCode::cancelled)
        for (const fs::path& path : came)
          set_aside(path, path);
      return context.failed(checked.error(),
                            checked.error().code == ErrorCode::cancelled ? kInterrupted : kFailed);
    }
  }
  if (!context.json())
    for (const json::value& file : files)
      context.out(text_at(file.as_object(), "path") + "\n");
  if (context.json()) context.document({{"files", files}});
  context.say(fmt::format("ponder: to use it: model = \"{}\" in {}, then {}",
                          source->files.front().name, places->config_file.string(),
                          context.own_command("ponder restart")));
  return kDone;
}
}  // namespace

Action declare_pull(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.words(
      "SOURCE", options->words, 1, 1,
      "https://HOST/PATH/FILE.gguf, hf:OWNER/REPO/FILE.gguf[@REVISION] or, on this machine only, "
      "http://127.0.0.1[:PORT]/PATH/FILE.gguf; the first part of a split file stands for all");
  arguments.option("--name", options->name, "the file's name in models/ (its own)");
  arguments.option("--sha256", options->sha256, "what the file must hash to");
  return [options](Context& context) { return pull(context, *options); };
}

}  // namespace ponder::cli
