#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "baton/archive/element_type.h"

/// The header of a safetensors file, as text.
namespace baton::archive {

/// The entry of a tensor in a header.
struct Entry {
  std::string name;
  ElementType dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 1;  // the product of the shape: at most 2^48
  std::uint64_t begin = 0;     // where its bytes lie after the header, as it says
  std::uint64_t end = 0;
};

struct Header {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

/// Parses exactly the format, event by event: no tree of a malicious text is ever built. Returns what is
/// wrong, as in "its header is not JSON"; empty if nothing is.
std::string parse_header(std::string_view text, Header& header);

}  // namespace baton::archive
