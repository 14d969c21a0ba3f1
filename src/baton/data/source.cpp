#include "baton/data/source.h"

#include "baton/base/error.h"

namespace baton::data {

void Samples::input(Draw, std::span<float>) const { throw BugError("inputs must be floats, and these are not"); }
void Samples::input(Draw, std::span<std::int32_t>) const { throw BugError("inputs must be integers, and these are not"); }
void Samples::target(Draw, std::span<float>) const { throw BugError("targets must be floats, and these are not"); }
void Samples::target(Draw, std::span<std::int32_t>) const { throw BugError("targets must be labels, and these are not"); }

}  // namespace baton::data
