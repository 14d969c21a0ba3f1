#include "baton/report/page.h"

#include "baton/lab/json.h"

// The page that cmake/web.cmake puts together and page_asset.cpp takes into the program.
extern "C" {
extern const char baton_page_begin[];
extern const char baton_page_end[];
}

namespace baton::report {
namespace {

constexpr std::string_view title_mark = "<!--baton:title-->";
constexpr std::string_view report_mark = "<!--baton:report-->";

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

/// JSON has `<` only inside strings, where it may as well be written as an escape; then neither `</script>`
/// nor `<!--` can occur.
std::string escape_json(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size() + text.size() / 64);
  for (const char c : text) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string title_of(const nlohmann::ordered_json& report) {
  const auto title = report.find("title");
  return title != report.end() && title->is_string() ? title->get<std::string>() : "Baton report";
}

}  // namespace

std::string fill_page(std::string_view page, const nlohmann::ordered_json& report) {
  using nlohmann::ordered_json;
  const std::string title = escape_html(title_of(report));
  const std::string json = escape_json(report.dump(-1, ' ', false, ordered_json::error_handler_t::replace));

  std::string filled;
  filled.reserve(page.size() + title.size() + json.size());
  while (true) {
    const std::size_t at = page.find("<!--baton:");
    filled += page.substr(0, at);
    if (at == std::string_view::npos) {
      return filled;
    }
    page.remove_prefix(at);
    if (page.starts_with(title_mark)) {
      filled += title;
      page.remove_prefix(title_mark.size());
    } else if (page.starts_with(report_mark)) {
      filled += json;
      page.remove_prefix(report_mark.size());
    } else {
      filled += page.front();
      page.remove_prefix(1);
    }
  }
}

std::string to_page(const nlohmann::ordered_json& report) { return fill_page({baton_page_begin, baton_page_end}, report); }

}  // namespace baton::report
