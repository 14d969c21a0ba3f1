#include "baton/strategy/gradients.h"

#include <algorithm>

namespace baton::strategy {

const Gradients::Copy* Gradients::of(DeviceId device) const {
  const auto found = std::lower_bound(copies.begin(), copies.end(), device,
                                      [](const Copy& copy, DeviceId wanted) { return copy.device < wanted; });
  return found == copies.end() || found->device != device ? nullptr : &*found;
}

std::vector<Gradients> gradients_of_parameters(const plan::Draft& draft) {
  constexpr std::uint32_t none = Id<void>::invalid;
  std::vector<std::uint32_t> ordinals(draft.buffers.size(), none);  // by buffer: the ordinal of the parameter whose gradient it is
  std::size_t count = 0;
  for (std::size_t b = 0; b < draft.buffers.size(); ++b) {
    const auto* part = std::get_if<plan::ParameterPart>(&draft.buffers[b].content);
    if (part != nullptr && draft.buffers[b].role == plan::Role::gradient) {
      ordinals[b] = part->ordinal;
      count = std::max<std::size_t>(count, std::size_t{part->ordinal} + 1);
    }
  }
  std::vector<Gradients> all(count);
  for (std::size_t i = 0; i < draft.tasks.size(); ++i) {
    for (const BufferId id : draft.tasks[i].writes) {
      if (const std::uint32_t ordinal = ordinals[id.index()]; ordinal != none) {
        all[ordinal].copies.push_back({draft.tasks[i].device, id, i + 1});
      }
    }
  }
  for (Gradients& one : all) {
    std::vector<Gradients::Copy>& copies = one.copies;
    one.first_writer = copies.empty() ? 0 : copies.front().end_of_writes - 1;
    std::stable_sort(copies.begin(), copies.end(), [](const auto& a, const auto& b) { return a.device < b.device; });
    // The last copy of each device stays.
    const auto kept = std::unique(copies.rbegin(), copies.rend(),
                                  [](const auto& a, const auto& b) { return a.device == b.device; });
    copies.erase(copies.begin(), kept.base());
  }
  return all;
}

}  // namespace baton::strategy
