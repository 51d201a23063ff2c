// The words of `ponder pull` and the headers that servers answer with.
#include "clients/cli/model_source.h"

#include <gtest/gtest.h>

namespace ponder::cli {
namespace {
constexpr const char* kHub = "https://hub.example/";

TEST(ModelSource, AnAddressNamesItsFile) {
  const auto source = read_model_source("https://host/a/b.gguf?x=1", "", kHub);
  ASSERT_TRUE(source);
  EXPECT_FALSE(source->from_hub);
  ASSERT_EQ(source->files.size(), 1u);
  EXPECT_EQ(source->files[0].url, "https://host/a/b.gguf?x=1");
  EXPECT_EQ(source->files[0].name, "b.gguf");
  EXPECT_EQ(read_model_source("https://h/b.gguf", "c.gguf", kHub)->files[0].name, "c.gguf");
}

TEST(ModelSource, TheHubsShortFormIsItsAddress) {
  const auto source = read_model_source("hf:owner/repo/dir/m.gguf@v2", "", kHub);
  ASSERT_TRUE(source);
  EXPECT_TRUE(source->from_hub);
  EXPECT_EQ(source->files[0].url, "https://hub.example/owner/repo/resolve/v2/dir/m.gguf");
  EXPECT_EQ(read_model_source("hf:o/r/m.gguf", "", kHub)->files[0].url,
            "https://hub.example/o/r/resolve/main/m.gguf");
}

TEST(ModelSource, TheFirstPartOfASplitFileStandsForAll) {
  const auto source = read_model_source("https://h/m-00001-of-00003.gguf", "", kHub);
  ASSERT_TRUE(source);
  ASSERT_EQ(source->files.size(), 3u);
  EXPECT_EQ(source->files[2].url, "https://h/m-00003-of-00003.gguf");
  EXPECT_EQ(source->files[2].name, "m-00003-of-00003.gguf");
  EXPECT_TRUE(source->files[2].is_part);
  EXPECT_TRUE(
      read_model_source("https://h/m-00002-of-00003.gguf", "x.gguf", kHub)->files[0].is_part);
  EXPECT_FALSE(read_model_source("https://h/m-0002-of-00003.gguf", "", kHub)->files[0].is_part);
  EXPECT_EQ(read_model_source("https://h/m-00002-of-00003.gguf", "", kHub)->files.size(), 1u);
  EXPECT_FALSE(read_model_source("https://h/m-00001-of-00003.gguf", "x.gguf", kHub));
}

TEST(ModelSource, WhatCouldLeaveTheDirectoryOrTheTransportIsRefused) {
  for (const char* word :
       {"", "model", "http://host/m.gguf", "http://127.0.0.1.evil/m.gguf", "ftp://h/m.gguf",
        "file:///m.gguf", "https://h/m.bin", "https://h", "https://h/.gguf", "https://h/a b.gguf",
        "https://h/m.gguf\"\noutput = \"/x", "https://h/{a,b}.gguf", "https://h/[1-9].gguf",
        "hf:owner/m.gguf", "hf:o/r/../../x.gguf", "hf:o/r/m.gguf@"}) {
    const auto source = read_model_source(word, "", kHub);
    ASSERT_FALSE(source) << word;
    EXPECT_EQ(source.error().code, ErrorCode::bad_request);
    EXPECT_NE(source.error().hint.find("http://127.0.0.1"), std::string::npos);
  }
  for (const char* name : {"../m.gguf", "/m.gguf", "m", ".m.gguf", "a b.gguf", "a/b.gguf"})
    EXPECT_FALSE(read_model_source("https://h/m.gguf", name, kHub)) << name;
  EXPECT_TRUE(read_model_source("http://127.0.0.1:8000/m.gguf", "", kHub));
}

TEST(RemoteFile, RedirectsTellTheHashAndTheLastResponseTheSize) {
  const std::string hash(64, 'A');
  const RemoteFile file = read_headers(
      "HTTP/1.1 302 Found\r\nContent-Length: 99\r\nETag: \"first\"\r\nX-Linked-Etag: \"" + hash +
      "\"\r\nX-Linked-Size: 5000\r\n\r\nHTTP/2 200 \r\ncontent-length: 5000\r\netag: "
      "\"second\"\r\n\r\n");
  EXPECT_EQ(file.status, 200);
  EXPECT_EQ(file.bytes, 5000);
  EXPECT_EQ(file.sha256, std::string(64, 'a'));
  EXPECT_EQ(file.version, "\"second\"");
}

TEST(RemoteFile, WhatIsNotSaidIsNotMadeUp) {
  const RemoteFile none = read_headers(
      "HTTP/1.1 200 OK\r\nX-Linked-Etag: \"short\"\r\n"
      "Content-Length: -5\r\nLast-Modified: Monday\r\n\r\n");
  EXPECT_EQ(none.status, 200);
  EXPECT_FALSE(none.bytes);
  EXPECT_EQ(none.sha256, "");
  EXPECT_EQ(none.version, "Monday");
  EXPECT_EQ(read_headers("").status, 0);
  EXPECT_EQ(read_headers("HTTP/").status, 0);
}
}  // namespace
}  // namespace ponder::cli
