#include "clients/cli/model_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace ponder::cli {
namespace {
constexpr std::size_t kUrlBytesMax = 2'000;
constexpr int kPartsMax = 999;
constexpr std::string_view kSuffix = ".gguf";

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  return first == text.npos ? std::string_view()
                            : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

bool is_plain_url(std::string_view url) {
  return url.size() <= kUrlBytesMax && std::all_of(url.begin(), url.end(), [](unsigned char c) {
           return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '`' && c != '{' &&
                  c != '}' && c != '[' && c != ']';
         });
}

bool is_on_this_machine(std::string_view url) {
  for (const std::string_view host : {"http://127.0.0.1", "http://localhost"})
    if (url.starts_with(host) && url.size() > host.size() &&
        (url[host.size()] == ':' || url[host.size()] == '/'))
      return true;
  return false;
}

tl::unexpected<Error> refuse(std::string message) {
  return fail(
      ErrorCode::bad_request, std::move(message),
      "sources are https://HOST/PATH/FILE.gguf, hf:OWNER/REPO/FILE.gguf and, on this machine "
      "only, http://127.0.0.1[:PORT]/PATH/FILE.gguf");
}

/// A file's name and nothing else: no directories, no hidden file, no control characters.
Result<std::string> file_name(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(),
                                 [](unsigned char c) { return c > ' ' && c < 0x7f && c != '/'; });
  if (!plain || name.empty() || name.front() == '.' || name.size() > 200)
    return refuse(fmt::format("\"{}\" is not the name of a file", name));
  if (!lower(name).ends_with(kSuffix))
    return refuse(fmt::format("\"{}\" does not end in .gguf", name));
  return std::string(name);
}

/// The number of parts where `name` is the first one of a split file; 0 otherwise.
int parts_of(std::string_view name) {
  constexpr std::string_view kFirst = "-00001-of-";
  const std::size_t at = name.rfind(kFirst);
  if (at == name.npos) return 0;
  const std::string_view count = name.substr(at + kFirst.size(), 5);
  int parts = 0;
  const auto [end, ec] = std::from_chars(count.data(), count.data() + count.size(), parts);
  const bool all = ec == std::errc() && end == count.data() + 5;
  return all && lower(name.substr(at + kFirst.size() + 5)) == kSuffix && parts <= kPartsMax ? parts
                                                                                            : 0;
}

/// Whether `name` is NAME-00002-of-00003.gguf or the like.
bool is_part_name(std::string_view name) {
  constexpr std::string_view kForm = "-00000-of-00000";
  const std::size_t stem = name.size() - std::min(name.size(), kSuffix.size());
  if (stem < kForm.size()) return false;
  const std::string_view end = name.substr(stem - kForm.size(), kForm.size());
  return std::equal(kForm.begin(), kForm.end(), end.begin(), [](char form, char c) {
    return form == '0' ? c >= '0' && c <= '9' : c == form;
  });
}

std::string part_of(std::string text, int number) {
  constexpr std::string_view kFirst = "-00001-of-";
  const std::size_t at = text.rfind(kFirst);
  return text.replace(at, kFirst.size(), fmt::format("-{:05}-of-", number));
}
}  // namespace

Result<ModelSource> read_model_source(std::string_view word, std::string_view name,
                                      std::string_view hub_url) {
  ModelSource source;
  std::string url(word);
  if (word.starts_with("hf:")) {
    std::string_view path = word.substr(3);
    std::string_view revision = "main";
    if (const std::size_t at = path.rfind('@'); at != path.npos) {
      revision = path.substr(at + 1);
      path = path.substr(0, at);
    }
    const std::size_t owner_end = path.find('/');
    const std::size_t repo_end = owner_end == path.npos ? path.npos : path.find('/', owner_end + 1);
    if (repo_end == path.npos || revision.empty() || path.find("..") != path.npos)
      return refuse(fmt::format("\"{}\" does not name a file of a repository", word));
    while (hub_url.ends_with('/'))
      hub_url.remove_suffix(1);
    url = fmt::format("{}/{}/resolve/{}/{}", hub_url, path.substr(0, repo_end), revision,
                      path.substr(repo_end + 1));
    source.from_hub = true;
  }
  if (!is_plain_url(url)) return refuse("the address holds characters that no address may hold");
  if (!url.starts_with("https://") && !is_on_this_machine(url))
    return refuse(
        fmt::format("\"{}\" is neither an https:// address nor one of http://127.0.0.1", url));
  const std::string path = url.substr(0, url.find_first_of("?#"));
  const std::size_t host_end = path.find('/', path.find("//") + 2);
  if (host_end == std::string::npos) return refuse(fmt::format("\"{}\" names no file", url));
  TRY(const std::string own_name, file_name(path.substr(path.rfind('/') + 1)));
  const int parts = parts_of(own_name);
  if (name.empty() || parts > 1) {
    if (!name.empty()) return refuse("a split file keeps its name");
    for (int part = 1; part <= std::max(parts, 1); ++part)
      source.files.push_back(parts > 1
                                 ? ModelFile{part_of(url, part), part_of(own_name, part), true}
                                 : ModelFile{url, own_name, is_part_name(own_name)});
    return source;
  }
  TRY(const std::string given, file_name(name));
  source.files.push_back({url, given, is_part_name(own_name)});
  return source;
}

RemoteFile read_headers(std::string_view text) {
  RemoteFile file;
  std::optional<std::int64_t> linked_bytes;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    const auto number = [](std::string_view digits) -> std::optional<std::int64_t> {
      std::int64_t value = 0;
      const auto [last, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      const bool all = ec == std::errc() && last == digits.data() + digits.size() && value >= 0;
      return all ? std::optional(value) : std::nullopt;
    };
    if (line.starts_with("HTTP/")) {  // the next response: what the one before said of itself goes
      file.bytes.reset();
      file.version.clear();
      const std::size_t blank = line.find(' ');
      file.status =
          blank == line.npos ? 0 : static_cast<int>(number(line.substr(blank + 1, 3)).value_or(0));
      continue;
    }
    const std::size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string key = lower(line.substr(0, colon));
    std::string_view value = trimmed(line.substr(colon + 1));
    if (key == "content-length") file.bytes = number(value);
    if (key == "etag" || (key == "last-modified" && file.version.empty())) file.version = value;
    if (key == "x-linked-size") linked_bytes = number(value);
    if (key == "x-linked-etag") {
      if (value.size() > 1 && value.front() == '"' && value.back() == '"')
        value = value.substr(1, value.size() - 2);
      file.sha256 = read_sha256(value);
    }
  }
  if (linked_bytes) file.bytes = linked_bytes;
  return file;
}

std::string read_sha256(std::string_view text) {
  const bool whole =
      text.size() == 64 &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  return whole ? lower(text) : std::string();
}

}  // namespace ponder::cli
