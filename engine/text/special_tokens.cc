#include "engine/text/special_tokens.h"

#include <algorithm>

namespace ponder::text {
namespace {

constexpr auto kByByte = [](const std::pair<unsigned char, std::uint32_t>& child,
                            unsigned char byte) { return child.first < byte; };

}  // namespace

void SpecialTokens::add(std::string_view text, TokenId id) {
  if (text.empty()) return;
  std::uint32_t at = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = nodes_[at].children;
    auto it = std::lower_bound(children.begin(), children.end(), byte, kByByte);
    if (it == children.end() || it->first != byte) {
      const auto fresh = static_cast<std::uint32_t>(nodes_.size());
      children.insert(it, {byte, fresh});
      nodes_.emplace_back();
      at = fresh;
    } else {
      at = it->second;
    }
  }
  if (nodes_[at].id < 0) nodes_[at].id = id;
}

const SpecialTokens::Node* SpecialTokens::child(const Node& node, unsigned char byte) const {
  const auto it = std::lower_bound(node.children.begin(), node.children.end(), byte, kByByte);
  return it == node.children.end() || it->first != byte ? nullptr : &nodes_[it->second];
}

TokenId SpecialTokens::find(std::string_view text) const {
  const Node* node = &nodes_[0];
  for (const char c : text) {
    node = child(*node, static_cast<unsigned char>(c));
    if (!node) return -1;
  }
  return node->id;
}

std::vector<SpecialMatch> SpecialTokens::matches(std::string_view text) const {
  std::vector<SpecialMatch> found;
  for (std::size_t at = 0; at < text.size();) {
    SpecialMatch longest{at, 0, -1};
    const Node* node = &nodes_[0];
    for (std::size_t end = at; end < text.size();) {
      node = child(*node, static_cast<unsigned char>(text[end++]));
      if (!node) break;
      if (node->id >= 0) longest = {at, end - at, node->id};
    }
    if (longest.size) found.push_back(longest);
    at += longest.size ? longest.size : 1;
  }
  return found;
}

}  // namespace ponder::text
