#include "baton/base/cache_folder.h"

#include <cstdlib>
#include <string>

namespace baton {

std::filesystem::path cache_folder() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string cache = set("XDG_CACHE_HOME"); std::filesystem::path(cache).is_absolute()) {  // the XDG rules ignore others
    return std::filesystem::path(cache) / "baton";
  }
  if (const std::string home = set("HOME"); !home.empty()) {
    return std::filesystem::path(home) / ".cache" / "baton";
  }
  return {};
}

}  // namespace baton
