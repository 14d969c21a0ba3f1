#pragma once

#include <string>

namespace baton {

/// What this machine calls itself on the network; "an unnamed host" where it does not say.
std::string host_name();

}  // namespace baton
