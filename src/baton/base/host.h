#pragma once

#include <string>

namespace baton {

/// The host name of this machine; "an unnamed host" if it has none.
std::string host_name();

}  // namespace baton
