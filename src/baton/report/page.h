#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace baton::report {

/// The report as one HTML file that needs nothing else: styles, program and data are inside, and it opens
/// without a network. Fields that the report lacks are left out of the page.
std::string to_page(const nlohmann::ordered_json& report);

/// Puts the report into another page: `<!--baton:title-->` and `<!--baton:report-->` in `page` are replaced. The report goes inside
/// a script element of type application/json, and cannot end it.
std::string fill_page(std::string_view page, const nlohmann::ordered_json& report);

}  // namespace baton::report
