#include "baton/cluster/core_sets.h"

#include <fmt/format.h>

namespace baton::cluster {

std::string to_text(const CoreSets& sets) {
  std::string text = "cpu";
  for (std::size_t d = 0; d < sets.devices.size(); ++d) {
    text += d == 0 ? ":" : ",";
    for (std::size_t c = 0; c < sets.devices[d].size(); ++c) {
      text += fmt::format("{}{}-{}", c == 0 ? "" : "+", sets.devices[d][c], sets.devices[d][c]);
    }
  }
  return text;
}

}  // namespace baton::cluster
